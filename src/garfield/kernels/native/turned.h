/* An array with its axes the other way round: to[k][j][i] = from[i][j][k].
 *
 * That is how convolution kernels of TensorFlow (space, in, out) become those of
 * PyTorch (out, in, space), and back; a matrix is the case b = 1. Tiles of 16 × 16
 * are turned in cache, so that every line of memory is read and written once.
 */

enum { SQUARE = 16 };

static int64_t turned(const float *restrict from, int64_t a, int64_t b, int64_t c,
                      float *restrict to) {
    float tile[SQUARE][SQUARE];
    for (int64_t j = 0; j < b; j++) /* outermost: measured best of the six orders */
        for (int64_t i0 = 0; i0 < a; i0 += SQUARE)
            for (int64_t k0 = 0; k0 < c; k0 += SQUARE) {
                const int64_t high = MIN(a - i0, (int64_t)SQUARE), wide = MIN(c - k0, (int64_t)SQUARE);
                const float *x = from + (i0 * b + j) * c + k0;
                float *y = to + (k0 * b + j) * a + i0;
                if (high == SQUARE && wide == SQUARE) { /* sizes that the compiler knows */
                    for (int i = 0; i < SQUARE; i++)
                        memcpy(tile[i], x + i * b * c, sizeof tile[i]);
                    for (int k = 0; k < SQUARE; k++)
                        for (int i = 0; i < SQUARE; i++) y[k * b * a + i] = tile[i][k];
                    continue;
                }
                for (int64_t k = 0; k < wide; k++)
                    for (int64_t i = 0; i < high; i++) y[k * b * a + i] = x[i * b * c + k];
            }
    return DONE;
}
