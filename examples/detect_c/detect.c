// detect <program> <scan.bin>: one box per line for float32 records x y z intensity: the label, the
// score, x y z dx dy dz and the heading.
#include <stdio.h>
#include <stdlib.h>

#include "lattice/lattice_c.h"

static void check(int32_t code) {
  if (code == LATTICE_OK) return;
  fprintf(stderr, "error %d: %s\n", (int)code, lattice_last_error());
  exit(code);
}

static const void* output(lattice_session* session, const char* name, int64_t* rows) {
  lattice_view view;
  check(lattice_session_get(session, name, &view));
  *rows = view.shape[0];
  return view.data;
}

int main(int count, char** arguments) {
  FILE* file = count == 3 ? fopen(arguments[2], "rb") : NULL;
  if (!file || fseek(file, 0, SEEK_END)) {
    fprintf(stderr, "detect <program> <scan.bin>\n");
    return 64;
  }
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

  int64_t rows;
  const float* boxes = output(session, "boxes", &rows);
  const float* scores = output(session, "scores", &rows);
  const int32_t* labels = output(session, "labels", &rows);
  for (int64_t i = 0; i < rows; ++i) {
    printf("%d %.9g", (int)labels[i], scores[i]);
    for (int j = 0; j < 7; ++j) printf(" %.9g", boxes[i * 7 + j]);
    printf("\n");
  }
  lattice_session_free(session);
  lattice_program_free(program);
  free(records);
  return 0;
}
