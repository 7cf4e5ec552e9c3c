// Preloaded into a rank: what it sends by MPI in large letters, parts of sums, begins with a float
// that is no number, as after bits flipped on the way.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdint.h>
#include <string.h>

int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
  int size = 0;
  MPI_Type_size(type, &size);
  if ((long)size * count >= 4096) {
    uint32_t bits;
    memcpy(&bits, data, sizeof bits);
    bits |= 0x7fc00000;
    memcpy((void *)data, &bits, sizeof bits);
  }
  int (*send)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *) =
      (int (*)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *))dlsym(
          RTLD_NEXT, "MPI_Isend");
  return send(data, count, type, to, tag, comm, request);
}
