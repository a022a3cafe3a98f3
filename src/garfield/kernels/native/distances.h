/* Squared distances between rows, for one element type T. Included once per type.
 *
 * Differences first, squares after: |x|^2 + |y|^2 - 2xy cancels in float.
 * Sums run in T inside a block and in double across blocks. Rows are taken in
 * tiles of TILE by TILE, so that few loads feed many pairs and all sums of a tile
 * stay in registers. On a processor with AVX2, a million columns of 17 rows took
 * 34 ms with the tiles of AVX-512, whose sums do not fit, and 10 with its own.
 */

/* LINE: columns in a line of the cache, the step of every loop. SPAN: columns in a block. With 4 KiB
 * of each row, the six rows of a tile stay in L1 and the totals cost little: 512 and 256 columns
 * took 10 and 25 % longer. */
enum { F(LANES) = VECTOR / (int)sizeof(T), F(LINE) = 64 / (int)sizeof(T), F(SPAN) = 1024 };

typedef T F(vec) __attribute__((vector_size(VECTOR), aligned(sizeof(T)), may_alias));

INLINE double F(total)(F(vec) v) {
    double sum = 0;
    for (int l = 0; l < F(LANES) / 2; l++) sum += (double)(v[l] + v[l + F(LANES) / 2]);
    return sum;
}

/* sums (R, C) = squared distances of R rows to C rows over len columns (a multiple of LINE); of
 * the upper triangle only when they are the same rows. R, C, chains and same are constants at every
 * call. Where pairs are few, each is summed in two chains, as additions wait for each other.
 *
 * What `ahead` points to is brought into L2 meanwhile, a line per step: the next block's columns
 * of some row. The processor does not foresee seventeen rows that go on 4 KiB later; without
 * this, 17 rows of a million columns took 10.3 ms instead of 7.6. */
INLINE void F(tile)(const T *const *left, const T *const *right, int64_t at, int64_t len,
                    const int R, const int C, const int chains, const int same, const T *ahead,
                    F(vec) *sums) {
    const int at_once = MIN(chains, 64 / VECTOR); /* vectors; with more, sums spill on NEON and SSE2 */
    F(vec) acc[2][TILE][TILE];
    const T *x[TILE], *y[TILE];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) x[r] = left[r] + at;
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) y[c] = right[c] + at;
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = same ? r + 1 : 0; c < C; c++) acc[0][r][c] = acc[1][r][c] = (F(vec)){0};
    for (int64_t k = 0; k < len; k += F(LINE)) {
        __builtin_prefetch(ahead + k, 0, 2);
#pragma GCC unroll 1
        for (int64_t m = k; m < k + F(LINE); m += at_once * F(LANES))
#pragma GCC unroll 2
            for (int u = 0; u < at_once; u++) {
                F(vec) b[TILE];
#pragma GCC unroll 4
                for (int c = 0; c < C; c++) b[c] = *(const F(vec) *)(y[c] + m + u * F(LANES));
#pragma GCC unroll 4
                for (int r = 0; r < R; r++) {
                    const F(vec) a = same ? b[r] : *(const F(vec) *)(x[r] + m + u * F(LANES));
#pragma GCC unroll 4
                    for (int c = same ? r + 1 : 0; c < C; c++) {
                        const F(vec) gap = a - b[c];
                        acc[u][r][c] += gap * gap;
                    }
                }
            }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = same ? r + 1 : 0; c < C; c++)
            sums[r * C + c] = acc[0][r][c] + acc[1][r][c];
}

/* One function per shape of tile, never inlined: in one large function, GCC 12 moves sums between
 * registers in the innermost loop, which cost 40 %. out (n, n) += the tile at row i, column j. */
#define SHAPE(name, R, C, chains, same)                                                         \
    static __attribute__((noinline)) void F(name)(const T *const *rows, int64_t n, int64_t i,   \
                                                  int64_t j, int64_t at, int64_t len,           \
                                                  const T *ahead, double *out) {                \
        F(vec) sums[(R) * (C)];                                                                 \
        F(tile)(rows + i, rows + j, at, len, R, C, chains, same, ahead, sums);                  \
        for (int r = 0; r < (R); r++)                                                           \
            for (int c = (same) ? r + 1 : 0; c < (C); c++)                                      \
                out[(i + r) * n + j + c] += F(total)(sums[r * (C) + c]);                        \
    }

SHAPE(square, TILE, TILE, 1, 0)
SHAPE(three_wide, TILE, 3, 1, 0)
SHAPE(two_wide, TILE, 2, 1, 0)
SHAPE(one_wide, TILE, 1, 2, 0)
SHAPE(triangle, TILE, TILE, 2, 1)
SHAPE(triangle_of_3, 3, 3, 2, 1)
SHAPE(triangle_of_2, 2, 2, 2, 1)
#undef SHAPE

/* The columns at..hi, fewer than a vector: in double. */
static void F(last_columns)(const T *const *rows, int64_t n, int64_t at, int64_t hi, double *out) {
    for (int64_t r = 0; r < n; r++)
        for (int64_t s = r + 1; s < n; s++)
            for (int64_t c = at; c < hi; c++) {
                const double gap = (double)rows[r][c] - (double)rows[s][c];
                out[r * n + s] += gap * gap;
            }
}

/* out (n, n), upper triangle: += squared distances over the columns lo..hi. */
static int64_t F(sq_dists)(const T *const *rows, int64_t n, int64_t lo, int64_t hi, double *out) {
    for (int64_t at = lo; at < hi; at += F(SPAN)) {
        const int64_t left = hi - at, len = MIN(left, (int64_t)F(SPAN)) / F(LINE) * F(LINE);
        int64_t i = 0, turn = 0;
/* Each tile looks ahead along another row; a few rows have a second turn. */
#define TILE_AT(name, j) F(name)(rows, n, i, j, at, len, rows[turn++ % n] + at + F(SPAN), out)
        for (; i + TILE <= n; i += TILE) {
            int64_t j = i + TILE;
            TILE_AT(triangle, i);
            for (; j + TILE <= n; j += TILE) TILE_AT(square, j);
            if (TILE > 3 && n - j == 3) TILE_AT(three_wide, j);
            if (n - j == 2) TILE_AT(two_wide, j);
            if (n - j == 1) TILE_AT(one_wide, j);
        }
        if (TILE > 3 && n - i == 3) TILE_AT(triangle_of_3, i);
        if (n - i == 2) TILE_AT(triangle_of_2, i);
#undef TILE_AT
        if (left < F(SPAN)) F(last_columns)(rows, n, at + len, hi, out);
    }
    return DONE;
}

/* The same in double throughout, of the rows or of mix (m, n) times them: for
 * rows so large that float overflows. Slower; used only then. */
static int64_t F(sq_dists_wide)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,
                                const double *mix, int64_t m, double *out) {
    enum { W = 128 };
    double *buf = scratch((size_t)m * W * sizeof *buf);
    if (!buf) return NO_MEMORY;
    for (int64_t at = lo; at < hi; at += W) {
        const int64_t len = MIN(hi - at, (int64_t)W);
        for (int64_t i = 0; i < m; i++) {
            double *restrict to = buf + i * W;
            if (!mix) {
                for (int64_t c = 0; c < len; c++) to[c] = (double)rows[i][at + c];
                continue;
            }
            for (int64_t c = 0; c < len; c++) to[c] = 0;
            for (int64_t k = 0; k < n; k++) {
                const double share = mix[i * n + k];
                if (share != 0)
                    for (int64_t c = 0; c < len; c++) to[c] += share * (double)rows[k][at + c];
            }
        }
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = i + 1; j < m; j++) {
                const double *x = buf + i * W, *y = buf + j * W;
                double lane[8] = {0};
                int64_t c = 0;
                for (; c + 8 <= len; c += 8)
                    for (int l = 0; l < 8; l++) {
                        const double gap = x[c + l] - y[c + l];
                        lane[l] += gap * gap;
                    }
                for (; c < len; c++) lane[0] += (x[c] - y[c]) * (x[c] - y[c]);
                for (int l = 0; l < 8; l++) out[i * m + j] += lane[l];
            }
    }
    free(buf);
    return DONE;
}

/* Squared distance of x[0..len) to y, or to the origin when y is NULL; in double, in eight chains.
 * Looks ahead along x by as much as it reads. */
INLINE double F(sq_dist)(const T *x, const T *y, int64_t len) {
    doubles sum[8];
    double total = 0;
    int64_t c = 0;
#pragma GCC unroll 8
    for (int u = 0; u < 8; u++) sum[u] = (doubles){0};
    for (; c + SUMMED <= len; c += SUMMED) {
        F(fetch)(x + c + len, SUMMED);
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++) {
            doubles gap = F(widened)(x + c + u * DOUBLES);
            if (y) gap -= F(widened)(y + c + u * DOUBLES);
            sum[u] += gap * gap;
        }
    }
    for (; c < len; c++) {
        const double gap = (double)x[c] - (y ? (double)y[c] : 0.0);
        total += gap * gap;
    }
#pragma GCC unroll 8
    for (int u = 1; u < 8; u++) sum[0] += sum[u];
    for (int l = 0; l < DOUBLES; l++) total += sum[0][l];
    return total;
}

/* out[i] += squared distance to v, or to the origin when v is NULL, of row i or
 * of row i of mix (m, n) times the rows. Double throughout: it is memory-bound. */
static int64_t F(sq_dists_to)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,
                              const double *mix, int64_t m, const T *v, double *out) {
    enum { W = 512 };
    T buf[W];
    for (int64_t at = lo; at < hi; at += W) {
        const int64_t len = MIN(hi - at, (int64_t)W);
        for (int64_t i = 0; i < m; i++) {
            if (mix) F(blend)(rows, n, at, len, mix + i * n, buf);
            out[i] += F(sq_dist)(mix ? buf : rows[i] + at, v ? v + at : NULL, len);
        }
    }
    return DONE;
}
