/// @file
/// LATTICE_API marks what the shared library shows. Everything else is hidden, so that the linker
/// can bind it and a program cannot come to rely on it.
#pragma once

/// Shown by the shared library.
#define LATTICE_API __attribute__((visibility("default")))
