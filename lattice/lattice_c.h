// The C interface. It runs programs, which `model.export` of Python writes, from C, Swift, Rust or
// C#.
//
//   lattice_program* program;
//   if (lattice_program_load("net.lattice.safetensors", NULL, &program))
//   puts(lattice_last_error());
//
// Handles are opaque. Every function returns a code; 0 is success. lattice_error(handle) is the
// text of the last error of a handle, lattice_last_error() that of the calling thread. Nothing is
// thrown or printed, and nothing exits. A program may be used by several threads at once, a session
// by one at a time. Structs begin with their size, so that later versions can add fields.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define LATTICE_C_API __attribute__((visibility("default")))
#else
#define LATTICE_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define LATTICE_ABI_VERSION 1
#define LATTICE_MAX_RANK 8

typedef struct lattice_program lattice_program;
typedef struct lattice_session lattice_session;

/** What functions return. */
enum {
  LATTICE_OK = 0,       /**< it worked */
  LATTICE_ARGUMENT = 1, /**< an input or an option that does not fit */
  LATTICE_FILE = 2,     /**< a file that cannot be read or is no program */
  LATTICE_VERSION = 3,  /**< an operation or version that this library does not know */
  LATTICE_LIMIT = 4,    /**< more points, rows or bytes than the options allow */
  LATTICE_MEMORY = 5,   /**< the machine has no memory left */
  LATTICE_DEVICE = 6,   /**< the device cannot do it */
  LATTICE_INTERNAL = 7  /**< a mistake of the library */
};

/** Types of values. */
enum {
  LATTICE_BOOL = 0,
  LATTICE_UINT8 = 1,
  LATTICE_INT8 = 2,
  LATTICE_UINT16 = 3,
  LATTICE_INT16 = 4,
  LATTICE_UINT32 = 5,
  LATTICE_INT32 = 6,
  LATTICE_UINT64 = 7,
  LATTICE_INT64 = 8,
  LATTICE_FLOAT16 = 9,
  LATTICE_FLOAT32 = 10,
  LATTICE_FLOAT64 = 11,
  LATTICE_BFLOAT16 = 12
};

/** 0 is the default of the library, and no limit. A frame beyond a limit is LATTICE_LIMIT; it is
 * never cut. */
typedef struct lattice_options {
  size_t size;        /**< sizeof(lattice_options) */
  int32_t threads;    /**< of the whole process */
  int64_t max_points; /**< rows of an input */
  int64_t max_rows;   /**< rows of any inner value */
  int64_t max_bytes;  /**< that a frame holds at once */
} lattice_options;

/** Numbers in memory: value (i, j) lies at data + i * strides[0] + j * strides[1], in bytes, at any
 * address. */
typedef struct lattice_view {
  size_t size;                       /**< sizeof(lattice_view) */
  const void* data;                  /**< the first value */
  int32_t dtype;                     /**< LATTICE_FLOAT32, ... */
  int32_t rank;                      /**< number of axes */
  int64_t shape[LATTICE_MAX_RANK];   /**< values per axis */
  int64_t strides[LATTICE_MAX_RANK]; /**< bytes from a value to the next one of an axis */
} lattice_view;

/** An input or an output. A sparse tensor x is two of them: x.coords, int32 (N, 4), lattice indices
 * with the batch first, and x.feats. */
typedef struct lattice_io {
  size_t size;                     /**< sizeof(lattice_io) */
  const char* name;                /**< valid as long as the program */
  int32_t is_output;               /**< 0: an input */
  int32_t dtype;                   /**< LATTICE_FLOAT32, ... */
  int32_t rank;                    /**< -1: an output whose shape is not known before a run */
  int64_t shape[LATTICE_MAX_RANK]; /**< -1: any size */
} lattice_io;

/** Changes when a program must be compiled again. */
LATTICE_C_API uint32_t lattice_abi_version(void);
/** Such as "0.2.0". */
LATTICE_C_API const char* lattice_library_version(void);

/** Reads a program from a file. options may be NULL. */
LATTICE_C_API int32_t lattice_program_load(const char* path, const lattice_options* options,
                                           lattice_program** out);
/** The same from the bytes of a file. */
LATTICE_C_API int32_t lattice_program_load_memory(const void* data, size_t bytes,
                                                  const lattice_options* options,
                                                  lattice_program** out);
/** *count: in, the room in `list`; out, the number of inputs and outputs. list may be NULL. The
 * fields `size` of the list need not be set. */
LATTICE_C_API int32_t lattice_program_describe(const lattice_program* program, lattice_io* list,
                                               int32_t* count);
/** A text of the header of the file, such as "classes"; "" if there is none. */
LATTICE_C_API int32_t lattice_program_note(const lattice_program* program, const char* key,
                                           const char** text);
/** Sessions of the program go on. NULL is allowed. */
LATTICE_C_API void lattice_program_free(lattice_program* program);

/** A session keeps its program alive. */
LATTICE_C_API int32_t lattice_session_new(const lattice_program* program, lattice_session** out);
/** Copies the numbers. An input with one value per row may have one axis more or less than the
 * program says. */
LATTICE_C_API int32_t lattice_session_set(lattice_session* session, const char* input,
                                          const lattice_view* view);
/** Computes the outputs of the inputs that were set. */
LATTICE_C_API int32_t lattice_session_run(lattice_session* session);
/** The view is valid until the next run or free of the session. */
LATTICE_C_API int32_t lattice_session_get(lattice_session* session, const char* output,
                                          lattice_view* view);
/** NULL is allowed. */
LATTICE_C_API void lattice_session_free(lattice_session* session);

/** The text of the last error of a program or session, "" if there was none; NULL: of this thread.
 */
LATTICE_C_API const char* lattice_error(const void* handle);
/** The text of the last error of this thread, also of a load that gave no handle. */
LATTICE_C_API const char* lattice_last_error(void);
/** Gives memory that is kept for later calls back to the system. */
LATTICE_C_API void lattice_release_memory(void);

/** How voxels become a .mlat file, or became it. 0 and NULL are the defaults. */
typedef struct lattice_codec {
  size_t size;       /**< sizeof(lattice_codec) */
  const char* model; /**< "octree" (default), "lidar", "auto"; lattice_decode leaves it alone */
  int32_t fast;      /**< with "lidar": without the adaptive model */
  double voxel_size; /**< point = origin + (voxel + 0.5) * voxel_size; 0 is 1 */
  double origin[3];  /**< see voxel_size */
  double sensor[3];  /**< with "lidar": where the scanner stood, in the units of the points */
} lattice_codec;
/** Distinct voxels (rows, 4), batch first, as the bytes of a file. *bytes: in, the room in `data`;
 * out, the size of the file. If the room is too small, the code is LATTICE_LIMIT and nothing is
 * written. codec may be NULL. */
LATTICE_C_API int32_t lattice_encode(const int32_t* coords, int64_t rows,
                                     const lattice_codec* codec, void* data, size_t* bytes);
/** The voxels of a file, in Morton order. *rows: in, the room in `coords`; out, the number of
 * voxels. If the room is too small, the code is LATTICE_LIMIT, nothing is decoded and nothing is
 * written. codec receives voxel_size and origin, or is NULL. */
LATTICE_C_API int32_t lattice_decode(const void* data, size_t bytes, int32_t* coords, int64_t* rows,
                                     lattice_codec* codec);

#ifdef __cplusplus
}
#endif
