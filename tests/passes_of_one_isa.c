/* Runs the passes of one instruction set without Python: for tests/unit/test_kernels_built.py.
 *
 * Built with -DPASSES="baseline.c" for another architecture, or with "for_isa.h" and the shape of
 * its tiles given on the command line. Reads n, d, then n weights (double) and n rows (float) from
 * standard input; writes the set's name on standard error, and on standard output the (n, n)
 * distances and (n,) distances to row 0 (double), the weighted sum, the median and the trimmed mean.
 */
#include PASSES

#include <stdio.h>

int main(void) {
    int64_t size[2];
    if (fread(size, sizeof *size, 2, stdin) != 2) return 1;
    const int64_t n = size[0], d = size[1];
    double *weights = calloc((size_t)n, sizeof *weights);
    double *dists = calloc((size_t)(n * n + n), sizeof *dists);
    float *values = malloc((size_t)(n * d) * sizeof *values);
    float *out = malloc((size_t)(3 * d) * sizeof *out);
    const float **rows = malloc((size_t)n * sizeof *rows);
    if (fread(weights, sizeof *weights, (size_t)n, stdin) != (size_t)n) return 1;
    if (fread(values, sizeof *values, (size_t)(n * d), stdin) != (size_t)(n * d)) return 1;
    for (int64_t i = 0; i < n; i++) rows[i] = values + i * d;
    int64_t bad = ISA.f32.sq_dists(rows, n, 0, d, dists);
    bad |= ISA.f32.sq_dists_to(rows, n, 0, d, NULL, n, rows[0], dists + n * n);
    const double whole = 1;
    bad |= ISA.f32.weighted_sum(rows, n, 0, d, weights, &whole, out);
    bad |= ISA.f32.select(rows, n, 0, d, NULL, n, NULL, 0, MEDIAN, 0, out + d);
    bad |= ISA.f32.select(rows, n, 0, d, NULL, n, NULL, 0, TRIMMED_MEAN, 1, out + 2 * d);
    if (bad) return 1;
    fwrite(dists, sizeof *dists, (size_t)(n * n + n), stdout);
    fwrite(out, sizeof *out, (size_t)(3 * d), stdout);
    fprintf(stderr, "%s", ISA.isa);
    return 0;
}
