/* All passes for one instruction set. Whoever includes this has defined
 *   ISA     the table's name in C,  ISA_NAME  its name for people,
 *   VECTOR  bytes of a register,    TILE      rows of a tile of distances (see distances.h).
 */
#include <float.h>
#include <stdlib.h>
#include <string.h>

#include "passes.h"

#define INLINE static inline __attribute__((always_inline))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

static void *scratch(size_t bytes) {
    void *p = NULL;
    return posix_memalign(&p, 64, bytes ? bytes : 64) ? NULL : p;
}

/* Doubles in a register, and columns that are summed at once: in eight registers. Of 32 bytes at
 * most, as GCC 12 widens eight floats by halves that it then has to join. */
enum { DOUBLES = MIN(VECTOR, 32) / 8, SUMMED = 8 * DOUBLES };
typedef double doubles __attribute__((vector_size(MIN(VECTOR, 32))));

/* Steps of a network: (i, j, kind). */
enum kind { BOTH = 0, ONLY_MIN = 1, ONLY_MAX = 2 };
enum mode { MEDIAN = 0, TRIMMED_MEAN = 1, MEAN_NEAR_MEDIAN = 2 };

#include "in_registers.h"

#define T float
#define BITS uint32_t
#define EXPONENT 0x7f800000u
#define LARGEST FLT_MAX
#define F(name) name##_f32
#define IN_REGISTERS 1
#include "columns.h"
#include "distances.h"
#undef T
#undef BITS
#undef EXPONENT
#undef LARGEST
#undef F
#undef IN_REGISTERS

#define T double
#define BITS uint64_t
#define EXPONENT 0x7ff0000000000000ull
#define LARGEST DBL_MAX
#define F(name) name##_f64
#define IN_REGISTERS 0
#include "columns.h"
#include "distances.h"

#include "turned.h"

#define TABLE_OF(T)                                                                             \
    {weighted_sum_##T,   non_finite_rows_##T, select_##T,     select_present_##T,              \
     sq_dists_##T,       sq_dists_wide_##T,   sq_dists_to_##T}

const struct passes ISA = {ISA_NAME, TABLE_OF(f32), TABLE_OF(f64), turned};
