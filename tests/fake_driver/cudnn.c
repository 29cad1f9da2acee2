/* cuDNN's graph API as far as readying a plan goes: every graph has two engines of two knobs each. It
 * counts what is destroyed while something that was made of it is still there. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { OK = 0, HANDLE = 0, INT64 = 3, DESCRIPTOR = 15, MOST = 64 };
/* Attributes, as cudnn_graph.h numbers them. */
enum { RESULTS = 202, ENGINE = 300, ENGINES = 802, KNOB_MAXIMUM = 1201, KNOB_STRIDE = 1203, KNOBS = 1302 };

struct thing { int users, count; struct thing *parts[MOST]; };
static int made, destroyed, early;
int *fake_made(void) { return &made; }
int *fake_destroyed(void) { return &destroyed; }
int *fake_early(void) { return &early; }

static int make(struct thing **out) { return made++, *out = calloc(1, sizeof(struct thing)), OK; }
static int destroy(struct thing *thing) {
    destroyed++, early += thing->users != 0;
    while (thing->count)
        thing->parts[--thing->count]->users--;
    /* Not freed: what still uses it counts down here. */
    return OK;
}

size_t cudnnGetVersion(void) { return 91900; }
const char *cudnnGetErrorString(int status) { return (void)status, "FAKE_ERROR"; }
void cudnnGetLastErrorString(char *text, size_t size) { (void)size, *text = 0; }
int cudnnCreate(struct thing **out) { return make(out); }
int cudnnDestroy(struct thing *thing) { return destroy(thing); }
int cudnnSetStream(struct thing *thing, void *stream) { return (void)thing, (void)stream, OK; }
int cudnnBackendCreateDescriptor(int kind, struct thing **out) { return (void)kind, make(out); }
int cudnnBackendDestroyDescriptor(struct thing *thing) { return destroy(thing); }
int cudnnBackendFinalize(struct thing *thing) { return (void)thing, OK; }

int cudnnBackendSetAttribute(struct thing *thing, int name, int type, int64_t count, struct thing **of) {
    (void)name;
    for (int64_t i = 0; (type == HANDLE || type == DESCRIPTOR) && i < count; i++) {
        of[i]->users++;
        thing->parts[thing->count++] = of[i];
    }
    return OK;
}

int cudnnBackendGetAttribute(struct thing *thing, int name, int type, int64_t room, int64_t *count,
                             int64_t *out) {
    (void)thing, (void)room;
    if (type == DESCRIPTOR)
        return *count = name == RESULTS || name == ENGINE ? 1 : name == KNOBS ? 2 : 0, OK;
    if (type != INT64)
        return *count = 0, OK;
    *out = name == ENGINES ? 2 : name == KNOB_MAXIMUM || name == KNOB_STRIDE;
    return *count = 1, OK;
}
