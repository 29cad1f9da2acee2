// The array of rows that everything else walks, and what this build compiled them for.
#include "registry.h"
#include "row.h"

#include <cuda_runtime.h>

#define UNRANKED(family, file) ROW(family, file)
#define ROW(family, file) extern "C" const cf_row CF_ROW(family, file);
#include "kernels.def"
#undef ROW

namespace {

const cf_row *const rows[] = {
#define ROW(family, file) &CF_ROW(family, file),
#include "kernels.def"
#undef ROW
    nullptr,
};
#undef UNRANKED

constexpr int32_t ranked[] = {
#define ROW(family, file) 1,
#define UNRANKED(family, file) 0,
#include "kernels.def"
#undef ROW
#undef UNRANKED
};

// Device code of a build: machine code of one generation, or PTX, which a driver translates. Rows
// that need more than it serves are not compiled to it (sys/nvcc, which defines the macros below).
// What needs sm_90a runs on that chip alone, also from PTX.
struct Image {
    int serves;      // the most that a row may need
    int first, last; // the devices that it runs on
    const char *word;
    bool is_ptx;
};

constexpr Image Sm80 = {CF_NEEDS_SM80, 80, 89, "80", false};
constexpr Image Sm90a = {CF_NEEDS_SM90A, 90, 90, "90a", false};
constexpr Image Ptx90 = {CF_NEEDS_SM90A, 90, INT32_MAX, "ptx", true};

constexpr bool runs(const Image &image, int needs, int arch) {
    const int last = needs == CF_NEEDS_SM90A ? 90 : image.last;
    return needs <= image.serves && arch >= image.first && arch <= last;
}
static_assert(runs(Sm80, CF_NEEDS_SM80, 86) && !runs(Sm80, CF_NEEDS_SM80, 90));
static_assert(!runs(Sm80, CF_NEEDS_SM80, 75) && !runs(Sm80, CF_NEEDS_SM90, 80));
static_assert(runs(Sm90a, CF_NEEDS_SM80, 90) && runs(Sm90a, CF_NEEDS_SM90A, 90));
static_assert(!runs(Sm90a, CF_NEEDS_SM80, 89) && !runs(Sm90a, CF_NEEDS_SM80, 100));
static_assert(runs(Ptx90, CF_NEEDS_SM80, 90) && runs(Ptx90, CF_NEEDS_SM90, 120));
static_assert(runs(Ptx90, CF_NEEDS_SM90A, 90) && !runs(Ptx90, CF_NEEDS_SM90A, 100));
static_assert(!runs(Ptx90, CF_NEEDS_SM80, 89));

constexpr Image images[] = {
#ifdef CF_IMAGE_SM80
    Sm80,
#endif
#ifdef CF_IMAGE_SM90A
    Sm90a,
#endif
#ifdef CF_IMAGE_PTX90
    Ptx90,
#endif
};

struct Words {
    char text[32];
};

constexpr Words joined() {
    Words words = {};
    int length = 0;
    for (const Image &image : images)
        for (const char *part : {length > 0 ? ", " : "", image.word})
            while (*part)
                words.text[length++] = *part++;
    return words;
}
constexpr Words words = joined();

} // namespace

const cf_row *const *cf_rows(void) { return rows; }

int32_t cf_is_ranked(uint64_t row) { return ranked[row]; }

int32_t cf_compiled_for(int32_t needs, int32_t arch) {
    for (const Image &image : images)
        if (runs(image, needs, arch))
            return 1;
    return 0;
}

int32_t cf_translated_for(int32_t arch) {
    bool translated = false;
    for (const Image &image : images)
        if (runs(image, CF_NEEDS_SM80, arch)) {
            if (!image.is_ptx)
                return 0;
            translated = true;
        }
    return translated;
}

const char *cf_compiled_archs(void) { return words.text; }

const char *cf_error_name(int32_t code) { return cudaGetErrorName(static_cast<cudaError_t>(code)); }

const char *cf_error_text(int32_t code) {
    return cudaGetErrorString(static_cast<cudaError_t>(code));
}
