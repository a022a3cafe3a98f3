/* AVX-512 (x86-64-v4): 32 registers of 64 bytes, of which a tile of 4 by 4 sums takes 16. */
#include "passes.h"

#if WIDER_X86
#pragma GCC target("arch=x86-64-v4")
#define ISA avx512
#define ISA_NAME "avx512"
#define VECTOR 64
#define TILE 4
#include "for_isa.h"
#endif
