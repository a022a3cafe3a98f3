/* Squared distances between rows, for one element type T. Included once per type.
 *
 * Differences first, squares after: |x|^2 + |y|^2 - 2xy cancels in float.
 * Sums run in T inside a block and in double across blocks. Rows are taken in
 * tiles of four by four, so that eight loads feed sixteen pairs and all sums
 * of a tile stay in registers.
 */

enum { F(LANES) = 64 / (int)sizeof(T), F(SPAN) = 1024 };

typedef T F(vec) __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));

INLINE double F(total)(F(vec) v) {
    double sum = 0;
    T half[F(LANES) / 2];
    for (int l = 0; l < F(LANES) / 2; l++) half[l] = v[l] + v[l + F(LANES) / 2];
    for (int l = 0; l < F(LANES) / 2; l++) sum += (double)half[l];
    return sum;
}

/* Add the squared distances of rows i..i+R to rows j..j+C over len columns
 * (a multiple of LANES). R and C are constants at every call. */
INLINE void F(tile)(const T *const *rows, int64_t n, int64_t i, int64_t j, int64_t at, int64_t len,
                    const int R, const int C, double *out) {
    F(vec) acc[4][4];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) acc[r][c] = (F(vec)){0};
    const T *x[4], *y[4];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) x[r] = rows[i + r] + at;
#pragma GCC unroll 4
    for (int c = 0; c < C; c++) y[c] = rows[j + c] + at;
    for (int64_t k = 0; k < len; k += F(LANES)) {
        F(vec) b[4];
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) b[c] = *(const F(vec) *)(y[c] + k);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const F(vec) a = *(const F(vec) *)(x[r] + k);
#pragma GCC unroll 4
            for (int c = 0; c < C; c++) {
                if (i == j && c <= r) continue; /* a tile on the diagonal: its upper triangle */
                const F(vec) gap = a - b[c];
                acc[r][c] += gap * gap;
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++)
            if (i != j || c > r) out[(i + r) * n + j + c] += F(total)(acc[r][c]);
}

/* Tiles right of a band of R rows: whole ones, then what is left of the columns. */
INLINE void F(band)(const T *const *rows, int64_t n, int64_t i, int64_t at, int64_t len,
                    const int R, double *out) {
    int64_t j = i + R;
    for (; j + 4 <= n; j += 4) F(tile)(rows, n, i, j, at, len, R, 4, out);
    if (n - j == 3) F(tile)(rows, n, i, j, at, len, R, 3, out);
    if (n - j == 2) F(tile)(rows, n, i, j, at, len, R, 2, out);
    if (n - j == 1) F(tile)(rows, n, i, j, at, len, R, 1, out);
}

INLINE void F(triangle)(const T *const *rows, int64_t n, int64_t at, int64_t i, int64_t len,
                        const int R, double *out) {
    F(tile)(rows, n, i, i, at, len, R, R, out);
}

/* out (n, n), upper triangle: += squared distances over the columns lo..hi. */
WIDEST static int64_t F(sq_dists)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,
                                  double *out) {
    for (int64_t at = lo; at < hi; at += F(SPAN)) {
        const int64_t len = MIN(hi - at, (int64_t)F(SPAN)), whole = len / F(LANES) * F(LANES);
        int64_t i = 0;
        for (; i + 4 <= n; i += 4) {
            F(triangle)(rows, n, at, i, whole, 4, out);
            F(band)(rows, n, i, at, whole, 4, out);
        }
        if (n - i == 3) F(triangle)(rows, n, at, i, whole, 3, out);
        if (n - i == 2) F(triangle)(rows, n, at, i, whole, 2, out);
        for (int64_t r = 0; r < n && whole < len; r++)
            for (int64_t s = r + 1; s < n; s++)
                for (int64_t c = at + whole; c < at + len; c++) {
                    const double gap = (double)rows[r][c] - (double)rows[s][c];
                    out[r * n + s] += gap * gap;
                }
    }
    return DONE;
}

/* The same in double throughout, of the rows or of mix (m, n) times them: for
 * rows so large that float overflows. Slower; used only then. */
WIDEST static int64_t F(sq_dists_wide)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,
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

/* out[i] += squared distance to v, or to the origin when v is NULL, of row i or
 * of row i of mix (m, n) times the rows. Double throughout: it is memory-bound. */
WIDEST static int64_t F(sq_dists_to)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,
                                     const double *mix, int64_t m, const T *v, double *out) {
    enum { W = 512, L = 16 };
    T buf[W];
    for (int64_t at = lo; at < hi; at += W) {
        const int64_t len = MIN(hi - at, (int64_t)W);
        for (int64_t i = 0; i < m; i++) {
            const T *x = mix ? buf : rows[i] + at, *y = v ? v + at : NULL;
            double lane[L] = {0};
            int64_t c = 0;
            if (mix) F(blend)(rows, n, at, len, mix + i * n, buf);
            if (y)
                for (; c + L <= len; c += L)
                    for (int l = 0; l < L; l++) {
                        const double gap = (double)x[c + l] - (double)y[c + l];
                        lane[l] += gap * gap;
                    }
            else
                for (; c + L <= len; c += L)
                    for (int l = 0; l < L; l++) lane[l] += (double)x[c + l] * (double)x[c + l];
            for (; c < len; c++) {
                const double gap = (double)x[c] - (y ? (double)y[c] : 0.0);
                lane[0] += gap * gap;
            }
            for (int l = 0; l < L; l++) out[i] += lane[l];
        }
    }
    return DONE;
}
