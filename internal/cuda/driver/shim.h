#include <stddef.h>

/* memplan_cuda_load opens the driver's library, once, and initializes it. It
 * returns the driver's result code; or -1 and why the library cannot be used.
 * missing is set to the number of functions that it does not have. */
int memplan_cuda_load(const char *path, char *why, size_t n, int *missing);
