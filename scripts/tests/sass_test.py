"""Tests of sass.py on lines as cuobjdump, ptxas and c++filt print them."""

import unittest

import objects
import sass

DISASSEMBLY = """
	code for sm_90a
		Function : _Z4fusedIfLi0ELb1EEv
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;              /* 0x00000a00ff017b82 */
                                                                       /* 0x000ff00000000800 */
        /*0010*/                   ULDC.64 UR6, c[0x0][0x228] ;        /* 0x00008a0000067ab9 */
        /*0020*/              @!P4 IADD3 R2, R2, -R5, RZ ;             /* 0x000fe20000000a00 */
        /*0030*/                   HFMA2.MMA R2, -RZ, RZ, 0, 0 ;       /* 0x00000000ff027435 */
        /*0040*/                   HFMA2 R9, R9.H0_H0, R20.H0_H0, R21.H0_H0 ;  /* 0x0 */
        /*0050*/                   IMAD.MOV.U32 R4, RZ, RZ, R3 ;       /* 0x000000ffff047224 */
        /*0060*/                   UIMAD UR5, UR4, UR5, URZ ;          /* 0x000000ffff047224 */
        /*0070*/                   LDS.128 R8, [R3+0x40] ;             /* 0x0000400003087984 */
        /*0080*/              @!PT LDS RZ, [RZ] ;                      /* 0x00000000ffff7984 */
        /*0090*/                   LDG.E.U16.CONSTANT R7, desc[UR4][R6.64] ;  /* 0x0 */
        /*00a0*/               @P0 BRA 0x60 ;                          /* 0xfffffff000007947 */
        /*00b0*/                   EXIT ;                              /* 0x000000000000794d */
        /*00c0*/                   BRA 0xc0;                           /* 0xfffffff000fc7947 */
        /*00d0*/                   NOP;                                /* 0x0000000000007918 */
		..........
		Function : other
        /*0000*/                   EXIT ;                              /* 0x000000000000794d */
"""

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'f' for 'sm_80'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers
ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : Function properties for f
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 2176 bytes smem
"""

USAGE = """Resource usage:
 Function f:
  REG:40 STACK:0 SHARED:3200 LOCAL:0 CONSTANT[2]:24 CONSTANT[0]:728 TEXTURE:0
"""

SOURCE = """
template <class T, int Math, int Tile, bool Nchw>
__global__ void __launch_bounds__(Tile *Tile, 3)
    tiled(const cf_problem p, const T *x) {}
template <class T, class Sum = cf::Sum<0>> __global__ void plain(int n) {}
template <class T, int R>
__global__ void __maxnreg__(118)
    limited(int n) {}
template <class T> __device__ float helper(T v) {}
"""

SHAPED = """
namespace cf::shaped {
template <class StoredOf, Product ProductOf, int TilesOf = tiles_of(1)>
struct Shape : Tile {
};
template <class Shape>
__global__ void __launch_bounds__(32, blocks_of(columns_of(of(sizeof(int)))))
    shaped(int n) {}
}
"""


def kernel(demangled, instructions=(), row="fused_shared"):
    parameters = {**sass.parse_parameters(SOURCE), **sass.parse_parameters(SHAPED)}
    return sass.Kernel(row, demangled, demangled, parameters, list(instructions), {})


def instructions(*lines):
    text = "\n".join(f"        /*{16 * i:04x}*/  {line} ; /* 0x0 */" for i, line in enumerate(lines))
    return sass.parse_sass(text.splitlines())


class Disassembly(unittest.TestCase):
    def test_rows_of_products_are_written_when_they_were_waited_for(self):
        product, last = (f"HGMMA.64x128x16.F32 R24, R88, gdesc[UR24], R24{end}" for end in ("", ", gsb0"))
        wait, load = "WARPGROUP.DEPBAR.LE gsb0, 0x0", "LDS.64 R90, [R2]"
        of = lambda *lines: [i.opcode for i in sass.overwritten(instructions(*lines))]
        self.assertEqual(of(load, product, last, wait, load), [])
        self.assertEqual(of(product, load, last, wait), ["LDS.64"])
        self.assertEqual(of(product, last, load), ["LDS.64"])
        self.assertEqual(of(product, "LDS.64 R86, [R2]", "LDS R92, [R2]", "STS [R2], R88", "UMOV UR4, UR5"), [])
        self.assertEqual(of(product, "LDS.128 R86, [R2]", "IMAD.WIDE R87, R2, R3, R4"), ["LDS.128", "IMAD.WIDE"])
        self.assertEqual(of(last, product, wait, load), ["LDS.64"], "no group yet when it was waited for")
        # Both operands in shared memory; a wait that leaves the last group under way.
        self.assertEqual(of("HGMMA.64x128x16.F32 R24, gdesc[UR24], R24, gsb0", load), [])
        other = "HGMMA.64x128x16.F32 R24, R100, gdesc[UR24], R24, gsb0"
        leaving = "WARPGROUP.DEPBAR.LE gsb0, 0x1"
        self.assertEqual(of(last, other, leaving, load, "MOV R100, R2"), ["MOV"])

    def test_functions_end_before_the_padding(self):
        functions = {name: sass.parse_sass(lines) for name, lines in sass.lines_of(DISASSEMBLY).items()}
        self.assertEqual(list(functions), ["_Z4fusedIfLi0ELb1EEv", "other"])
        self.assertEqual(len(functions["_Z4fusedIfLi0ELb1EEv"]), 13)
        self.assertEqual(functions["other"], [("", "EXIT", "")])

    def test_the_mix(self):
        mix = sass.mix(sass.parse_sass(sass.lines_of(DISASSEMBLY)["_Z4fusedIfLi0ELb1EEv"]))
        counted = {name: count for name, count in mix.items() if count}
        wanted = {"HFMA2": 1, "IMAD": 1, "integer": 1, "MOV": 2, "LDC": 2, "LDS": {128: 1},
                  "LDG": {16: 1}, "BRA": 2, "other": 2}
        self.assertEqual(counted, wanted)
        self.assertEqual(sass.cell({32: 8, 128: 2}), "8x32 2x128")

    def test_plain_code_stands_for_an_architecture_with_features(self):
        record = objects.Record("flags -gencode=arch=compute_90,code=[sm_90,compute_90]\n")
        self.assertEqual(sass.compiled_for(record, "sm_90a"), "sm_90")
        self.assertEqual(sass.compiled_for(record, "sm_80"), None)
        record = objects.Record("flags -gencode=arch=compute_90a,code=[sm_90a]\n")
        self.assertEqual(sass.compiled_for(record, "sm_90a"), "sm_90a")

    def test_what_ptxas_said(self):
        said = sass.parse_ptxas(PTXAS, "sm_90a")["f"]
        wanted = {"registers": 40, "shared_bytes": 2176, "stack_bytes": 16,
                  "spill_store_bytes": 8, "spill_load_bytes": 12}
        self.assertEqual(said, wanted)
        self.assertEqual(sass.parse_ptxas(PTXAS, "sm_80")["f"]["shared_bytes"], 0)
        self.assertEqual(sass.parse_constants(USAGE), {"f": 752})


class Names(unittest.TestCase):
    def test_names_and_arguments(self):
        name = "void (anonymous namespace)::fused<cf::Out<float>, 0, true>(cf_problem, float const*)"
        self.assertEqual(sass.parse_name(name), ("fused", ["cf::Out<float>", "0", "true"]))
        self.assertEqual(sass.parse_name("linear(float const*, int)"), ("linear", []))

    def test_parameters_of_the_source(self):
        found = sass.parse_parameters(SOURCE)
        tiled = ["T", "Math", "Tile", "Nchw"]
        self.assertEqual(found, {"tiled": tiled, "plain": ["T", "Sum"], "limited": ["T", "R"]})

    def test_what_is_no_element_math_or_layout_is_the_configuration(self):
        self.assertEqual(kernel("void tiled<float, 0, 16, true>()").settings, (("Tile", "16"),))
        self.assertEqual(kernel("void plain<float, cf::Sum<0>>()").settings, ())
        # Its parameters are not known by name.
        self.assertEqual(kernel("void elsewhere<float, 8>()").settings, (("", "8"),))

    def test_a_shape_has_parameters_of_its_own(self):
        found = sass.parse_parameters(SHAPED)
        names = ["Stored", "Product", "Tiles"]
        self.assertEqual(found, {"shaped": ["Shape"], "cf::shaped::Shape": names})
        shaped = kernel("void shaped<cf::shaped::Shape<__half, (cf::shaped::Product)1, 4>>(int)")
        self.assertEqual(shaped.instance, "shaped<Shape<__half, 1, 4>>")
        self.assertEqual(shaped.settings, (("Product", "1"), ("Tiles", "4")))
        self.assertEqual(shaped.preference, (sass.ELEMENTS.index("__half"),))

    def test_a_configuration_is_what_differs(self):
        names = ["tiled<float, 0, 16, true>", "tiled<float, 0, 8, true>", "other<3, 16>",
                 "other<4, 16>", "plain<float>"]
        kernels = sass.configure([kernel(f"void {name}()") for name in names])
        configurations = [k.configuration for k in kernels]
        self.assertEqual(configurations, ["3", "4", "", "tile=8", "tile=16"])

    def test_one_instance_per_configuration(self):
        names = ["tiled<__half, 0, 16, true>", "tiled<float, 1, 16, true>",
                 "tiled<float, 0, 16, false>", "tiled<float, 0, 16, true>",
                 "tiled<__half, 4, 8, true>", "tiled<__half, 2, 8, true>"]
        chosen = sass.representatives([kernel(f"void {name}(int)") for name in names])
        self.assertEqual([k.instance for k in chosen],
                         ["tiled<float, 0, 16, true>", "tiled<__half, 2, 8, true>"])


class Check(unittest.TestCase):
    def fails(self, demangled, overtaken_at):
        one = kernel(demangled)
        one.overtaken_at = overtaken_at
        try:
            sass.check(one)
        except sass.Failure as failure:
            return str(failure)
        return None

    def test_arrivals_that_overtake_loads_are_counted(self):
        rows, mma = "void cf::depthwise_rows_kernel<5>(int)", "void cf::depthwise_mma_kernel<5>(int)"
        self.assertIsNone(self.fails(mma, []))
        self.assertIn("at 0x30; 0 may be", self.fails(mma, [0x30]))
        self.assertIsNone(self.fails(rows, [0x30]))
        self.assertIn("at 0x30, 0x70; 1 may be", self.fails(rows, [0x30, 0x70]))


class SameCode(unittest.TestCase):
    def test_registers_and_places_are_no_difference(self):
        one = kernel("a()", instructions("FFMA R1, R2, R3, R1", "@P0 BRA 0x40"))
        two = kernel("b()", instructions("FFMA R8, R2, R9, R8", "@P1 BRA 0x80"), "direct_naive")
        self.assertEqual(sass.alike([one, two]), [("instructions", [one, two])])

    def test_other_operands_are_one(self):
        one = kernel("a()", instructions("IADD3 R1, R1, 0x10, RZ"))
        two = kernel("b()", instructions("IADD3 R1, R1, 0x20, RZ"))
        three = kernel("c()", instructions("IADD3.X R1, R1, 0x20, RZ"))
        self.assertEqual(sass.alike([one, two, three]), [("opcodes", [one, two])])
        four = kernel("d()", instructions("IADD3 R7, R7, 0x10, RZ"))
        found = sass.alike([one, two, four])
        self.assertEqual(found, [("instructions", [one, four]), ("opcodes", [one, two, four])])


if __name__ == "__main__":
    unittest.main()
