/* AVX2 and FMA (x86-64-v3): 16 registers of 32 bytes. A tile of 3 by 3 sums takes 9 of them and
 * leaves room for its 3 columns, a row and a difference; one of 4 by 4 sums would spill. */
#include "passes.h"

#if WIDER_X86
#pragma GCC target("arch=x86-64-v3")
#define ISA avx2
#define ISA_NAME "avx2"
#define VECTOR 32
#define TILE 3
#include "for_isa.h"
#endif
