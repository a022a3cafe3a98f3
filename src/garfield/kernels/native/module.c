/* garfield.kernels._native: the passes of passes.h for Python, and the choice among them.
 *
 * Each runs on one thread and without the GIL; kernels/parallel.py deals the
 * columns out. The widest instruction set that the processor has is used, unless
 * use_isa says otherwise (kernels/instructions.py). All other arguments are plain
 * integers (addresses and sizes), so one build against the limited API serves
 * every CPython from 3.10 on. Callers inside the package are trusted to pass live
 * buffers; nothing here is reachable by a peer.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "passes.h"

#include "cover.h"

/* ---- which instruction set ---------------------------------------------- */

/* Those that this processor has, widest first. */
static const struct passes *usable[3];
static int usable_count;
static const struct passes *use;

static void find_usable(void) {
    usable_count = 0;
#if WIDER_X86
    __builtin_cpu_init();
    if (__builtin_cpu_supports("x86-64-v4")) usable[usable_count++] = &avx512;
    if (__builtin_cpu_supports("x86-64-v3")) usable[usable_count++] = &avx2;
#endif
    usable[usable_count++] = &baseline;
    use = usable[0];
}

static PyObject *py_isas(PyObject *self, PyObject *unused) {
    PyObject *names = PyTuple_New(usable_count);
    (void)self, (void)unused;
    for (int i = 0; names && i < usable_count; i++) {
        PyObject *name = PyUnicode_FromString(usable[i]->isa);
        if (!name || PyTuple_SetItem(names, i, name)) {
            Py_DECREF(names);
            return NULL;
        }
    }
    return names;
}

static PyObject *py_isa(PyObject *self, PyObject *unused) {
    (void)self, (void)unused;
    return PyUnicode_FromString(use->isa);
}

static PyObject *py_use_isa(PyObject *self, PyObject *name) {
    (void)self;
    for (int i = 0; i < usable_count; i++)
        if (PyUnicode_CompareWithASCIIString(name, usable[i]->isa) == 0) {
            use = usable[i];
            Py_RETURN_NONE;
        }
    return PyErr_Format(PyExc_ValueError, "this processor has no %U", name);
}

/* ---- the passes --------------------------------------------------------- */

#define ARGS_MAX 14

static int integers(PyObject *const *args, Py_ssize_t given, Py_ssize_t wanted, Py_ssize_t *out) {
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "expected %zd integers, got %zd", wanted, given);
        return -1;
    }
    for (Py_ssize_t i = 0; i < given; i++) {
        out[i] = PyLong_AsSsize_t(args[i]);
        if (out[i] == -1 && PyErr_Occurred()) return -1;
    }
    return 0;
}

static PyObject *answer(int64_t status) {
    if (status == NO_MEMORY) return PyErr_NoMemory();
    return PyLong_FromLongLong(status);
}

#define P(type, i) ((type)(a[i]))
#define EXPOSE(name, count, call)                                                         \
    static PyObject *py_##name(PyObject *self, PyObject *const *args, Py_ssize_t given) { \
        Py_ssize_t a[ARGS_MAX];                                                           \
        int64_t status;                                                                   \
        (void)self;                                                                       \
        if (integers(args, given, count, a)) return NULL;                                 \
        Py_BEGIN_ALLOW_THREADS status = (call);                                           \
        Py_END_ALLOW_THREADS return answer(status);                                       \
    }

#define EXPOSE_BOTH(name, count, CALL)                      \
    EXPOSE(name##_f32, count, CALL(float, use->f32.name))   \
    EXPOSE(name##_f64, count, CALL(double, use->f64.name))

#define CALL_SUM(T, fn) \
    fn(P(const T *const *, 0), a[1], a[2], a[3], P(const double *, 4), P(const double *, 5), P(T *, 6))
#define CALL_FINITE(T, fn) fn(P(const T *const *, 0), a[1], a[2], a[3], P(uint8_t *, 4))
#define CALL_SELECT(T, fn)                                                               \
    fn(P(const T *const *, 0), a[1], a[2], a[3], P(const double *, 4), a[5],             \
       P(const int32_t *, 6), a[7], (int)a[8], a[9], P(T *, 10))
#define CALL_MASKED(T, fn)                                                               \
    fn(P(const T *const *, 0), P(const uint8_t *const *, 1), a[2], a[3], a[4],           \
       P(const int32_t *, 5), a[6], (int)a[7], a[8], P(T *, 9))
#define CALL_DISTS(T, fn) fn(P(const T *const *, 0), a[1], a[2], a[3], P(double *, 4))
#define CALL_WIDE(T, fn) \
    fn(P(const T *const *, 0), a[1], a[2], a[3], P(const double *, 4), a[5], P(double *, 6))
#define CALL_TO(T, fn) \
    fn(P(const T *const *, 0), a[1], a[2], a[3], P(const double *, 4), a[5], P(const T *, 6), P(double *, 7))

EXPOSE_BOTH(weighted_sum, 7, CALL_SUM)
EXPOSE_BOTH(non_finite_rows, 5, CALL_FINITE)
EXPOSE_BOTH(select, 11, CALL_SELECT)
EXPOSE_BOTH(select_present, 10, CALL_MASKED)
EXPOSE_BOTH(sq_dists, 5, CALL_DISTS)
EXPOSE_BOTH(sq_dists_wide, 7, CALL_WIDE)
EXPOSE_BOTH(sq_dists_to, 8, CALL_TO)
EXPOSE(min_diameter, 4, min_diameter(P(const double *, 0), a[1], a[2], P(uint8_t *, 3)))
EXPOSE(turned, 5, use->turned(P(const float *, 0), a[1], a[2], a[3], P(float *, 4)))

#define ENTRY(name) {#name, (PyCFunction)(void (*)(void))py_##name, METH_FASTCALL, NULL}
#define ENTRY_BOTH(name) ENTRY(name##_f32), ENTRY(name##_f64)

static PyMethodDef methods[] = {
    ENTRY_BOTH(weighted_sum), ENTRY_BOTH(non_finite_rows), ENTRY_BOTH(select),
    ENTRY_BOTH(select_present), ENTRY_BOTH(sq_dists), ENTRY_BOTH(sq_dists_wide),
    ENTRY_BOTH(sq_dists_to), ENTRY(min_diameter), ENTRY(turned),
    {"isas", py_isas, METH_NOARGS, NULL}, {"isa", py_isa, METH_NOARGS, NULL},
    {"use_isa", py_use_isa, METH_O, NULL}, {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__native(void) {
    find_usable();
    return PyModule_Create(&module);
}
