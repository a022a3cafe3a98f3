/* Column-wise passes, for one element type T. Included once per type.
 *
 * A block of columns is brought into scratch that stays in cache with the wanted
 * ranks in place, and a short epilogue reads them off. Up to 32 float32 rows are
 * sorted in registers on the way (in_registers.h); others by a selection network, a
 * list of compare-exchange steps over whole rows of the block, which
 * kernels/networks.py prunes to the ranks that a rule asks for.
 */

enum { F(BLOCK) = 1024 };

/* Columns per block, so that `rows` of them take about 12 KiB of a 32 KiB L1: measured best of 6, 12, 16, 20, 24. */
INLINE int64_t F(width)(int64_t rows) {
    int64_t w = (int64_t)(12288 / sizeof(T)) / (rows > 0 ? rows : 1) / 16 * 16;
    return MIN(MAX(w, 32), F(BLOCK));
}

/* True if any of x[0..count) is NaN or infinite; integers, since the compiler
 * may not reorder float comparisons but may vectorise these. */
INLINE int F(any_non_finite)(const T *x, int64_t count) {
    BITS bad = 0;
    for (int64_t c = 0; c < count; c++) {
        BITS b;
        memcpy(&b, &x[c], sizeof b);
        bad |= (BITS)((b & EXPONENT) == EXPONENT);
    }
    return bad != 0;
}

/* As many elements as a register holds doubles. */
typedef T F(few) __attribute__((vector_size(DOUBLES * sizeof(T)), aligned(sizeof(T)), may_alias));

INLINE doubles F(widened)(const T *x) {
    return __builtin_convertvector(*(const F(few) *)x, doubles);
}

/* Bring `count` elements from x on into L2; they need not exist. */
INLINE void F(fetch)(const T *x, int64_t count) {
    for (int64_t c = 0; c < count; c += 64 / (int64_t)sizeof(T)) __builtin_prefetch(x + c, 0, 2);
}

/* out[0..SUMMED) = sum of share_i x_i / divisor over the same columns of n rows, in eight registers. Looks
 * ahead along every row by 512 bytes: 4.2 ms for 17 rows of a million columns, 5.2 without,
 * 4.4 to 4.9 at 1, 2 or 4 KiB; and 6.5 with sums in memory, four rows at a time. */
INLINE void F(sum_of)(const T *const *rows, const double *share, int64_t n, double divisor,
                      int64_t at, T *out) {
    enum { AHEAD = 512 / sizeof(T) };
    doubles sum[8];
#pragma GCC unroll 8
    for (int u = 0; u < 8; u++) sum[u] = (doubles){0};
    for (int64_t i = 0; i < n; i++) {
        const T *x = rows[i] + at;
        F(fetch)(x + AHEAD, SUMMED);
#pragma GCC unroll 8
        for (int u = 0; u < 8; u++) sum[u] += share[i] * F(widened)(x + u * DOUBLES);
    }
#pragma GCC unroll 8
    for (int u = 0; u < 8; u++)
        *(F(few) *)(out + u * DOUBLES) = __builtin_convertvector(sum[u] / divisor, F(few));
}

/* out = sum of w_i x_i / divisor, accumulated in double: memory-bound all the same, and
 * weights of a huge row may lie below what float can hold. `out` may be one of
 * the rows. NON_FINITE when a result is. Rows of weight zero are not read. */
static int64_t F(weighted_sum)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,
                               const double *w, const double *divisor, T *out) {
    const T **live = scratch((size_t)n * sizeof *live);
    double *share = scratch((size_t)n * sizeof *share);
    int64_t count = 0;
    int bad = 0;
    if (!live || !share) {
        free(live), free(share);
        return NO_MEMORY;
    }
    for (int64_t i = 0; i < n; i++)
        if (w[i] != 0.0) live[count] = rows[i], share[count++] = w[i];
    for (int64_t at = lo; at < hi; at += F(BLOCK)) {
        const int64_t end = MIN(hi, at + F(BLOCK));
        int64_t c = at;
        for (; c + SUMMED <= end; c += SUMMED) F(sum_of)(live, share, count, *divisor, c, out + c);
        for (; c < end; c++) {
            double sum = 0;
            for (int64_t i = 0; i < count; i++) sum += share[i] * (double)live[i][c];
            out[c] = (T)(sum / *divisor);
        }
        bad |= F(any_non_finite)(out + at, end - at);
    }
    free(live), free(share);
    return bad ? NON_FINITE : DONE;
}

/* bad[i] |= row i has a NaN or an infinity. */
static int64_t F(non_finite_rows)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,
                                  uint8_t *bad) {
    for (int64_t i = 0; i < n; i++)
        if (F(any_non_finite)(rows[i] + lo, hi - lo)) bad[i] = 1;
    return DONE;
}

INLINE void F(exchange)(T *restrict a, T *restrict b, int64_t len, int32_t kind) {
    if (kind == BOTH) {
        for (int64_t c = 0; c < len; c++) {
            const T x = a[c], y = b[c];
            const T low = MIN(x, y), high = MAX(x, y);
            a[c] = low, b[c] = high;
        }
    } else if (kind == ONLY_MIN) {
        for (int64_t c = 0; c < len; c++) a[c] = MIN(a[c], b[c]);
    } else {
        for (int64_t c = 0; c < len; c++) b[c] = MAX(a[c], b[c]);
    }
}

/* to = shares (n) times a block of the rows; four rows at a time, as in weighted_sum. */
INLINE void F(blend)(const T *const *rows, int64_t n, int64_t at, int64_t len,
                     const double *shares, T *restrict to) {
    int64_t k = 0;
    for (int64_t c = 0; c < len; c++) to[c] = 0;
    for (; k + 4 <= n; k += 4) {
        const T s0 = (T)shares[k], s1 = (T)shares[k + 1];
        const T s2 = (T)shares[k + 2], s3 = (T)shares[k + 3];
        const T *x0 = rows[k] + at, *x1 = rows[k + 1] + at;
        const T *x2 = rows[k + 2] + at, *x3 = rows[k + 3] + at;
        for (int64_t c = 0; c < len; c++)
            to[c] += (s0 * x0[c] + s1 * x1[c]) + (s2 * x2[c] + s3 * x3[c]);
    }
    for (; k < n; k++) {
        const T share = (T)shares[k];
        const T *from = rows[k] + at;
        for (int64_t c = 0; c < len; c++) to[c] += share * from[c];
    }
}

/* Fill m scratch rows with a block: the rows themselves, or mix (m, n) times them. */
INLINE int F(load)(const T *const *rows, int64_t n, int64_t at, int64_t len, const double *mix,
                   int64_t m, T *buf, int64_t width) {
    int bad = 0;
    for (int64_t i = 0; i < m; i++) {
        T *restrict to = buf + i * width;
        if (mix)
            F(blend)(rows, n, at, len, mix + i * n, to);
        else
            memcpy(to, rows[i] + at, (size_t)len * sizeof(T));
        bad |= F(any_non_finite)(to, len);
    }
    return bad;
}

/* Put the ranks that `net` asks for in place: m scratch rows of a block, from the
 * rows or from mix (m, n) times them. True if a value is not finite. */
INLINE int F(rank)(const T *const *rows, int64_t n, int64_t at, int64_t len, const double *mix,
                   int64_t m, const int32_t *net, int64_t steps, T *buf, int64_t width) {
#if IN_REGISTERS
    const sorter sort = sorter_of(m);
    if (sort && !mix) return sort(rows, at, len, buf, width);
    if (sort) {
        const T *mixed[SORTER_ROWS];
        for (int64_t i = 0; i < m; i++) mixed[i] = buf + i * width;
        return F(load)(rows, n, at, len, mix, m, buf, width) || sort(mixed, 0, len, buf, width);
    }
#endif
    if (F(load)(rows, n, at, len, mix, m, buf, width)) return 1;
    for (const int32_t *s = net; s < net + 3 * steps; s += 3)
        F(exchange)(buf + s[0] * width, buf + s[1] * width, len, s[2]);
    return 0;
}

/* The middle of m sorted rows; halves first, so that two huge values do not overflow. */
INLINE void F(middle)(const T *buf, int64_t m, int64_t width, int64_t len, T *out) {
    const T *a = buf + (m - 1) / 2 * width, *b = buf + m / 2 * width;
    if (a == b)
        memcpy(out, a, (size_t)len * sizeof(T));
    else
        for (int64_t c = 0; c < len; c++) out[c] = (T)0.5 * a[c] + (T)0.5 * b[c];
}

/* Mean of the k values nearest the median of m sorted ones. They are a window
 * of the sorted column; it moves past s when x[s + k] is strictly nearer the
 * median than x[s]. So value i is in it iff it was reached (shift[i - k]) and
 * not left behind (shift[i]): no branch, and no sum that is later subtracted. */
INLINE void F(near_median)(const T *buf, int64_t m, int64_t width, int64_t len, int64_t k,
                           T *shift, T *mid, double *acc, T *out) {
    const int64_t moves = m - k;
    F(middle)(buf, m, width, len, mid);
    for (int64_t s = 0; s < moves; s++) {
        const T *a = buf + s * width, *b = buf + (s + k) * width;
        T *restrict go = shift + s * width;
        for (int64_t c = 0; c < len; c++)
            go[c] = (T)0.5 * a[c] + (T)0.5 * b[c] < mid[c] ? (T)1 : (T)0;
    }
    for (int64_t c = 0; c < len; c++) acc[c] = 0;
    for (int64_t i = 0; i < m; i++) {
        const T *x = buf + i * width;
        const T *reached = i >= k ? shift + (i - k) * width : NULL;
        const T *left = i < moves ? shift + i * width : NULL;
        if (reached && left)
            for (int64_t c = 0; c < len; c++) acc[c] += (double)(x[c] * (reached[c] * ((T)1 - left[c])));
        else if (reached)
            for (int64_t c = 0; c < len; c++) acc[c] += (double)(x[c] * reached[c]);
        else if (left)
            for (int64_t c = 0; c < len; c++) acc[c] += (double)(x[c] * ((T)1 - left[c]));
        else
            for (int64_t c = 0; c < len; c++) acc[c] += (double)x[c];
    }
    for (int64_t c = 0; c < len; c++) out[c] = (T)(acc[c] / (double)k);
}

/* Median, trimmed mean (arg = how many to drop at each end) or mean of the arg
 * values nearest the median, of the m = n rows, or of mix (m, n) times them. */
static int64_t F(select)(const T *const *rows, int64_t n, int64_t lo, int64_t hi,
                         const double *mix, int64_t m, const int32_t *net, int64_t steps,
                         int mode, int64_t arg, T *out) {
    const int64_t width = F(width)(m);
    const int64_t extra = (mode == MEAN_NEAR_MEDIAN ? m - arg : 0) + 1;
    T *buf = scratch((size_t)((m + extra) * width) * sizeof(T));
    double acc[F(BLOCK)];
    int64_t status = DONE;
    if (!buf) return NO_MEMORY;
    T *mid = buf + m * width, *shift = mid + width;
#if IN_REGISTERS
    if (mode == MEDIAN && !mix && median_of(n)) {
        status = median_of(n)(rows, lo, hi - lo, out + lo, 0) ? NON_FINITE : DONE;
        free(buf);
        return status;
    }
#endif
    for (int64_t at = lo; at < hi; at += width) {
        const int64_t len = MIN(hi - at, width);
        if (F(rank)(rows, n, at, len, mix, m, net, steps, buf, width)) {
            status = NON_FINITE; /* the caller sets the bad rows aside and comes again */
            break;
        }
        if (mode == MEDIAN) {
            F(middle)(buf, m, width, len, out + at);
        } else if (mode == TRIMMED_MEAN) {
            for (int64_t c = 0; c < len; c++) acc[c] = 0;
            for (int64_t i = arg; i < m - arg; i++) {
                const T *x = buf + i * width;
                for (int64_t c = 0; c < len; c++) acc[c] += (double)x[c];
            }
            for (int64_t c = 0; c < len; c++) out[at + c] = (T)(acc[c] / (double)(m - 2 * arg));
        } else {
            F(near_median)(buf, m, width, len, arg, shift, mid, acc, out + at);
        }
    }
    free(buf);
    return status;
}

/* The same three where some coordinates never arrived (present[i][c] == 0).
 * Absent values sort last; a column of p present ones then drops
 * min(f, (p - 1) / 2) at each end, or keeps the max(1, p - f) nearest its
 * median. A column where nothing arrived gives 0. arg = f. */
static int64_t F(select_present)(const T *const *rows, const uint8_t *const *present,
                                 int64_t n, int64_t lo, int64_t hi, const int32_t *net,
                                 int64_t steps, int mode, int64_t f, T *out) {
    const int64_t width = F(width)(n);
    T *buf = scratch((size_t)(n * width) * sizeof(T));
    int64_t count[F(BLOCK)];
    int64_t status = DONE;
    if (!buf) return NO_MEMORY;
    for (int64_t at = lo; at < hi && status == DONE; at += width) {
        const int64_t len = MIN(hi - at, width);
        memset(count, 0, sizeof count);
        for (int64_t i = 0; i < n; i++) {
            T *restrict to = buf + i * width;
            for (int64_t c = 0; c < len; c++) {
                const int here = present[i][at + c] != 0;
                to[c] = here ? rows[i][at + c] : (T)LARGEST;
                count[c] += here;
            }
            if (F(any_non_finite)(to, len)) status = NON_FINITE;
        }
        if (status != DONE) break;
        for (const int32_t *s = net; s < net + 3 * steps; s += 3)
            F(exchange)(buf + s[0] * width, buf + s[1] * width, len, s[2]);
        for (int64_t c = 0; c < len; c++) {
            const int64_t p = count[c];
            const T *x = buf + c; /* x[i * width]: rank i of this column */
            int64_t first = 0, kept = 0;
            double sum = 0;
            if (p > 0) {
                const double mid = 0.5 * (double)x[(p - 1) / 2 * width] + 0.5 * (double)x[p / 2 * width];
                if (mode == MEDIAN) {
                    out[at + c] = (T)mid;
                    continue;
                }
                if (mode == TRIMMED_MEAN) {
                    first = MIN(f, (p - 1) / 2);
                    kept = p - 2 * first;
                } else {
                    kept = MAX(1, p - f);
                    while (first + kept < p &&
                           0.5 * (double)x[first * width] + 0.5 * (double)x[(first + kept) * width] < mid)
                        first++;
                }
                for (int64_t i = first; i < first + kept; i++) sum += (double)x[i * width];
            }
            out[at + c] = kept ? (T)(sum / (double)kept) : 0;
        }
    }
    free(buf);
    return status;
}
