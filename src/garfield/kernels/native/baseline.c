/* What every processor of an architecture has: SSE2 on x86-64 (16 registers of 16 bytes), NEON on
 * 64-bit ARM (32 of 16), and vectors of 16 bytes as the compiler sees fit elsewhere. */
#define ISA baseline
#define VECTOR 16
#if defined(__x86_64__)
#define ISA_NAME "sse2"
#define TILE 3
#elif defined(__aarch64__)
#define ISA_NAME "neon"
#define TILE 4
#else
#define ISA_NAME "generic"
#define TILE 3
#endif
#include "for_isa.h"
