/* The passes over memory that every rule shares, as one table per instruction set.
 *
 * Each pass works on the columns lo..hi of n rows given by address, on one
 * thread. baseline.c, avx2.c and avx512.c build the same passes (for_isa.h), each
 * with the vectors and the tiles that fit its registers; module.c picks a table.
 */
#pragma once

#include <stdint.h>

enum status { DONE = 0, NON_FINITE = 1, NO_MEMORY = -1 };

#define PASSES_OF(T)                                                                            \
    struct {                                                                                    \
        int64_t (*weighted_sum)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,        \
                                const double *w, const double *divisor, T *out);                \
        int64_t (*non_finite_rows)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,     \
                                   uint8_t *bad);                                               \
        int64_t (*select)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,              \
                          const double *mix, int64_t m, const int32_t *net, int64_t steps,      \
                          int mode, int64_t arg, T *out);                                       \
        int64_t (*select_present)(const T *const *rows, const uint8_t *const *present,          \
                                  int64_t n, int64_t lo, int64_t hi, const int32_t *net,        \
                                  int64_t steps, int mode, int64_t f, T *out);                  \
        int64_t (*sq_dists)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,            \
                            double *out);                                                       \
        int64_t (*sq_dists_wide)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,       \
                                 const double *mix, int64_t m, double *out);                    \
        int64_t (*sq_dists_to)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,         \
                               const double *mix, int64_t m, const T *v, double *out);          \
    }

struct passes {
    const char *isa;
    PASSES_OF(float) f32;
    PASSES_OF(double) f64;
    int64_t (*turned)(const float *from, int64_t a, int64_t b, int64_t c, float *to);
};

extern const struct passes baseline __attribute__((visibility("hidden")));

/* One binary for all x86-64 machines. GCC 12 is the first to know the levels by
 * name; other compilers build the baseline alone. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#define WIDER_X86 1
extern const struct passes avx2 __attribute__((visibility("hidden")));
extern const struct passes avx512 __attribute__((visibility("hidden")));
#else
#define WIDER_X86 0
#endif
