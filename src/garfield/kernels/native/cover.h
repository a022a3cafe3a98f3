/* The n - f rows of smallest diameter, exactly (MDA).
 *
 * A set of rows has diameter <= delta iff the rows left out touch every pair
 * farther apart than delta: they are a vertex cover of the graph of too-long
 * distances. So: bisect over the distances that occur, and ask each time for a
 * cover of at most f rows by a bounded search tree. Rows come sorted by the
 * caller in an order that does not depend on how peers are numbered, so the
 * cover found (there may be several) does not either.
 */

typedef struct {
    int64_t n, words;
    uint64_t *edges;  /* (n, words): who is too far from whom */
    uint64_t *stack;  /* (f + 2, 2 * words): rows still in the graph, and neighbours, per depth */
    uint8_t *out;     /* rows taken into the cover */
} cover_search;

static inline int64_t degree(const cover_search *g, const uint64_t *alive, int64_t v) {
    int64_t sum = 0;
    for (int64_t w = 0; w < g->words; w++)
        sum += __builtin_popcountll(g->edges[v * g->words + w] & alive[w]);
    return sum;
}

static inline int is_alive(const uint64_t *set, int64_t v) { return (int)(set[v / 64] >> (v % 64) & 1); }
static inline void drop(uint64_t *set, int64_t v) { set[v / 64] &= ~(1ull << (v % 64)); }

/* Is there a cover of at most k of the rows in `alive`? Marks it in g->out. */
static int cover(cover_search *g, const uint64_t *from, int64_t k, int64_t depth) {
    uint64_t *alive = g->stack + depth * 2 * g->words, *near = alive + g->words;
    int64_t budget = k, best, best_degree, half_edges;
    uint8_t *taken = malloc((size_t)g->n);
    if (!taken) return NO_MEMORY;
    memset(taken, 0, (size_t)g->n);
    memcpy(alive, from, (size_t)g->words * sizeof *alive);
    int found = 0;
    for (;;) {
        int forced = 0;
        best = -1, best_degree = 0, half_edges = 0;
        for (int64_t v = 0; v < g->n; v++) {
            if (!is_alive(alive, v)) continue;
            const int64_t deg = degree(g, alive, v);
            if (deg == 0) { /* nothing of it left to cover */
                drop(alive, v);
            } else if (deg > budget) { /* leaving it uncovered would take more than budget */
                if (budget == 0) goto done;
                taken[v] = 1, budget--, drop(alive, v), forced = 1;
            } else if (deg == 1) { /* its one neighbour covers at least as much */
                for (int64_t w = 0; w < g->words; w++) {
                    const uint64_t hit = g->edges[v * g->words + w] & alive[w];
                    if (hit) {
                        const int64_t u = w * 64 + __builtin_ctzll(hit);
                        taken[u] = 1, budget--, drop(alive, u);
                        break;
                    }
                }
                drop(alive, v), forced = 1;
            } else {
                half_edges += deg;
                if (deg > best_degree) best = v, best_degree = deg;
            }
        }
        if (!forced) break;
    }
    if (best < 0) {
        found = 1;
    } else if (budget > 0 && half_edges <= 2 * budget * best_degree) {
        drop(alive, best); /* either `best` is in the cover ... */
        taken[best] = 1;
        found = cover(g, alive, budget - 1, depth + 1);
        if (!found && best_degree <= budget) { /* ... or all its neighbours are */
            taken[best] = 0;
            for (int64_t w = 0; w < g->words; w++) near[w] = g->edges[best * g->words + w] & alive[w];
            for (int64_t v = 0; v < g->n; v++)
                if (is_alive(near, v)) taken[v] = 1, drop(alive, v);
            found = cover(g, alive, budget - best_degree, depth + 1);
        }
    }
done:
    if (found == 1)
        for (int64_t v = 0; v < g->n; v++) g->out[v] |= taken[v];
    free(taken);
    return found;
}

static int ascending(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int coverable(cover_search *g, const double *dist, double delta, int64_t f, uint64_t *all) {
    memset(g->edges, 0, (size_t)(g->n * g->words) * sizeof *g->edges);
    memset(g->out, 0, (size_t)g->n);
    for (int64_t i = 0; i < g->n; i++)
        for (int64_t j = 0; j < g->n; j++)
            if (i != j && dist[i * g->n + j] > delta)
                g->edges[i * g->words + j / 64] |= 1ull << (j % 64);
    return cover(g, all, f, 0);
}

/* left_out[i] = 1 for at most f rows whose absence minimises the diameter. */
static int64_t min_diameter(const double *dist, int64_t n, int64_t f, uint8_t *left_out) {
    const int64_t words = (n + 63) / 64;
    int64_t count = 0, status = NO_MEMORY;
    double *sorted = malloc((size_t)(n * n + 1) * sizeof *sorted);
    uint64_t *all = calloc((size_t)words, sizeof *all);
    cover_search g = {n, words, malloc((size_t)(n * words) * 8),
                      malloc((size_t)((f + 2) * 2 * words) * 8), left_out};
    if (!sorted || !all || !g.edges || !g.stack) goto done;
    for (int64_t v = 0; v < n; v++) all[v / 64] |= 1ull << (v % 64);
    sorted[count++] = 0.0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i + 1; j < n; j++) sorted[count++] = dist[i * n + j];
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    int64_t low = 0, high = count - 1; /* the largest distance leaves nothing to cover */
    while (low < high) {
        const int64_t mid = (low + high) / 2;
        const int found = coverable(&g, dist, sorted[mid], f, all);
        if (found == NO_MEMORY) goto done;
        if (found)
            high = mid;
        else
            low = mid + 1;
    }
    status = coverable(&g, dist, sorted[high], f, all) == NO_MEMORY ? NO_MEMORY : DONE;
done:
    free(sorted), free(all), free(g.edges), free(g.stack);
    return status;
}
