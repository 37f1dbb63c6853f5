// label <program> <scan.bin>: one label per line for float32 records x y z intensity.
#include <stdio.h>
#include <stdlib.h>

#include "lattice/lattice_c.h"

static void check(int32_t code) {
  if (code == LATTICE_OK) return;
  fprintf(stderr, "error %d: %s\n", (int)code, lattice_last_error());
  exit(code);
}

int main(int count, char** arguments) {
  FILE* file = count == 3 ? fopen(arguments[2], "rb") : NULL;
  if (!file || fseek(file, 0, SEEK_END)) return fprintf(stderr, "label <program> <scan.bin>\n"), 64;
  const long bytes = ftell(file);
  float* records = malloc(bytes > 0 ? (size_t)bytes : 1);
  rewind(file);
  if (bytes < 0 || !records || fread(records, 1, (size_t)bytes, file) != (size_t)bytes) return 66;
  fclose(file);

  lattice_program* program;
  lattice_session* session;
  check(lattice_program_load(arguments[1], NULL, &program));
  check(lattice_session_new(program, &session));
  lattice_view points = {.size = sizeof(points), .data = records, .dtype = LATTICE_FLOAT32};
  points.rank = 2, points.shape[0] = bytes / 16, points.shape[1] = 3;
  points.strides[0] = 16, points.strides[1] = 4;
  lattice_view intensity = points;
  intensity.data = records + 3, intensity.shape[1] = 1;
  check(lattice_session_set(session, "points", &points));
  check(lattice_session_set(session, "intensity", &intensity));
  check(lattice_session_run(session));
  lattice_view labels;
  check(lattice_session_get(session, "labels", &labels));
  for (int64_t i = 0; i < labels.shape[0]; ++i) printf("%d\n", ((const int32_t*)labels.data)[i]);
  lattice_session_free(session);
  lattice_program_free(program);
  free(records);
  return 0;
}
