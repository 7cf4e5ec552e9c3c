# lockstep: `make help` lists what can be made.
#
# Sources are found by folder; a folder is a layer (tests/check_layers has the law). Every
# configuration (plain, asan, tsan) uses the same rules and builds into its own folder.

SHELL := /bin/bash
MAKEFLAGS += --no-builtin-rules
# Use all cores, unless -j says otherwise; a make below this one shares its jobs.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc 2>/dev/null || echo 1)
endif
.SUFFIXES:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := all

# CROSS=aarch64 builds here for 64-bit Arm: with a cross compiler, and the libraries below SYSROOT.
# By default they are those of Debian 12, which are fetched into build/aarch64/root.
CROSS    ?=
BUILD    ?= build$(CROSS:%=/%/build)
PREFIX   ?= /usr/local
DESTDIR  ?=
SANITIZE ?=
# The compiler wrapper of any MPI: mpicxx, mpicxx.mpich, mpiicpx, CC. MPI=none builds without MPI.
MPI      ?= wrapper
ifneq ($(CROSS),)
TRIPLE   := $(CROSS)-linux-gnu
FETCHED  := $(CURDIR)/build/$(CROSS)/root
SYSROOT  ?= $(FETCHED)
AR       := $(TRIPLE)-ar
ifneq ($(origin CXX),command line)
CXX      := $(TRIPLE)-g++ --sysroot=$(SYSROOT)
endif
# Open MPI's wrapper of this machine says the same of another's folders.
MPI_AT   := $(SYSROOT)/usr/lib/$(TRIPLE)/openmpi
MPICXX   ?= env OPAL_INCLUDEDIR=$(MPI_AT)/include OPAL_LIBDIR=$(MPI_AT)/lib mpicxx
# What asks for libraries asks for those below SYSROOT.
THERE    := env SYSROOT=$(SYSROOT) PKG_CONFIG_SYSROOT_DIR=$(SYSROOT) \
            PKG_CONFIG_LIBDIR=$(SYSROOT)/usr/lib/$(TRIPLE)/pkgconfig:$(SYSROOT)/usr/share/pkgconfig
endif
MPICXX   ?= mpicxx
ifeq ($(MPI),none)
override MPICXX :=
endif
export MPICXX
CCACHE   ?= $(shell command -v ccache)
ifeq ($(origin CXX),default)
CXX := g++
endif

# Each probe runs once, when a recipe first needs it; `make help` runs none.
once        = $(eval $(1) := $$(shell $(2)))$($(1))
, := ,
blank := $() $()
include src/ports/cuda/cuda.mk
include src/ports/grpc/grpc.mk

# ---- what goes into the program --------------------------------------------------------------
ROOMS     := base device nn optim cluster data comm pack liveness backend reduce model config observe infer train serve study
PORTS     := cpu clock $(if $(MPICXX),mpi,none/mpi) tcp http $(if $(WITH_CUDA),cuda nccl,none/cuda) \
             $(or $(WITH_GRPC),none/grpc)
# A folder x86 or arm has sources for such processors alone, and generic those for all others: where
# there is no folder of this kind next to it. The compiler's target says the kind.
MACHINE   := $(shell $(CXX) -dumpmachine 2>/dev/null)
PROCESSOR ?= $(or $(if $(filter x86_64-%,$(MACHINE)),x86),$(if $(filter aarch64-%,$(MACHINE)),arm),generic)
KINDS     := x86 arm
ELSEWHERE := $(foreach kind,$(filter-out $(PROCESSOR),$(KINDS)),$(shell find src -type d -name $(kind))) \
             $(if $(filter $(PROCESSOR),$(KINDS)),$(patsubst %/$(PROCESSOR),%/generic,$(shell \
               find src -type d -name $(PROCESSOR))))
everywhere = $(sort $(shell find $(1) -name '$(2)' 2>/dev/null))
found      = $(filter-out $(ELSEWHERE:%=%/%),$(call everywhere,$(1),$(2)))
LIB_DIRS  := $(ROOMS:%=src/%) $(PORTS:%=src/ports/%)
LIB_SRC   := $(call found,$(LIB_DIRS),*.cpp)
KERNELS   := $(call found,$(LIB_DIRS),*.cu)
ARCHIVED  := $(LIB_SRC) $(KERNELS)
APP_SRC   := $(call found,src/app,*.cpp)
SUPPORT   := $(call found,tests/support,*.cpp)
# Catch2 itself, in main.cpp, takes longest to compile, so it comes first.
SUPPORT   := $(filter %/main.cpp,$(SUPPORT)) $(filter-out %/main.cpp,$(SUPPORT))
UNIT_SRC  := $(filter-out %/mpi_world.cpp,$(SUPPORT)) $(call found,tests/unit,*.cpp)
MPI_SRC   := $(filter-out %/unit_process.cpp,$(SUPPORT)) $(call found,tests/mpi,*.cpp)
GPU_SRC   := $(call found,tests/gpu,*.cpp) $(filter-out %/unit_process.cpp,$(SUPPORT))
FORMATTED := $(foreach kind,hpp cpp inc cu cuh,$(call everywhere,include src tests,*.$(kind)))

objects    = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(1:.cu=.cu.cpp))

# Here all sources of a folder are compiled in one piece, because their headers take longer than
# they do, and so are unit tests; a new file recompiles only its own folder. With PIECE=1 each
# source is compiled separately, as `make asan` and `make tsan` do, which finds missing includes.
PIECE     ?= $(if $(SANITIZE),1,folder)
IN_PIECES := $(if $(filter-out 1,$(PIECE)),tests/unit \
               $(addprefix src/,$(ROOMS) app ports/clock ports/mpi ports/tcp $(if $(SANITIZE),ports/cpu)))
# Apart: what is compiled for one instruction set, and what a program links that only loads models.
BY_ITSELF := %_avx2.cpp %_avx512.cpp %_avx512_bf16.cpp %_plain.cpp src/backend/parameters.cpp
IN_ONE    := $(filter-out $(BY_ITSELF),$(filter $(IN_PIECES:%=%/%),$(LIB_SRC) $(APP_SRC) $(UNIT_SRC)))
PIECES    := $(addsuffix piece,$(sort $(dir $(IN_ONE))))
$(foreach piece,$(PIECES),$(eval $(piece) := $(filter $(IN_ONE),$(wildcard $(dir $(piece))*.cpp))))
unpieced   = $(call objects,$(filter-out $(IN_ONE),$(1)))
pieced     = $(patsubst %,$(BUILD)/obj/%.o,$(1))
APP_OBJ   := $(call unpieced,$(APP_SRC)) $(call pieced,$(filter src/app/%,$(PIECES)))
LIB_OBJ   := $(call unpieced,$(ARCHIVED)) $(call pieced,$(filter-out src/app/% tests/%,$(PIECES))) $(GRPC_OBJ)
# The address sanitizer's build takes those of the plain one.
UNIT_OBJ  ?= $(call unpieced,$(UNIT_SRC)) $(call pieced,$(filter tests/%,$(PIECES)))
LIB       := $(BUILD)/liblockstep.a
PROGRAM   := $(BUILD)/lockstep
UNIT      := $(BUILD)/unit_tests
MPI_TESTS := $(if $(MPICXX),$(BUILD)/mpi_tests)
GPU_TESTS := $(if $(and $(WITH_CUDA),$(wildcard tests/gpu)),$(BUILD)/gpu_tests)
# The kernels and the code that starts them, compiled for the host: only CUDA's headers are needed.
EMULATED  := $(if $(and $(CUDA_H),$(CUDNN_H),$(NCCL_H)),$(BUILD)/emulated_tests)
EMU_SRC   := $(call found,tests/emulated,*.cpp) $(filter-out %/mpi_world.cpp,$(SUPPORT)) \
             $(addprefix tests/gpu/,fixture.cpp input_test.cpp program_test.cpp recompute_test.cpp \
               task_test.cpp train_test.cpp) $(call found,tests/gpu/steps,*.cpp) \
             $(filter-out $(addprefix %/,conv_engines.cpp preflight.cpp),\
               $(call found,src/ports/cuda,*.cpp)) $(call found,src/ports/nccl,*.cpp)
EMU_OBJ   := $(patsubst %,$(BUILD)/obj/emulated/%.o,$(call found,src/ports/cuda,*.cu))
BENCHES   := $(patsubst tests/bench/programs/%.cpp,$(BUILD)/bench/%,$(wildcard tests/bench/programs/*.cpp))

# ---- the compiler and the libraries ----------------------------------------------------------
# What the wrapper adds: Open MPI says it by the first words, Cray by the second, MPICH and Intel by
# the third, after the compiler's name and options. MPI's C++ classes are left out: the standard
# removed them.
ask_mpi     = { $(MPICXX) --showme:$(1) || $(MPICXX) --cray-print-opts=$(2) || \
                $(MPICXX) -$(1)_info; } 2>/dev/null
MPI_CFLAGS  = $(call once,MPI_CFLAGS,$(if $(MPICXX),$(call ask_mpi,compile,cflags)))
MPI_LIBS    = $(call once,MPI_LIBS,$(if $(MPICXX),$(call ask_mpi,link,libs) | tr ' ' '\n' | \
                sed -E '1{/^-/!d};/^-([IDOgfm]|W[^l]|l(mpi_cxx|mpichcxx|mpicxx))/d'))
# Modules of HDF5 may come without pkg-config's file, but set CPATH and LIBRARY_PATH.
HDF5        = $(call once,HDF5,$(THERE) pkg-config --exists hdf5 && echo hdf5)
PKGS        = $(HDF5) hwloc fmt libjpeg libpng zlib libdeflate libzstd libwebp liblzma blosc libmicrohttpd
PKG_CFLAGS  = $(call once,PKG_CFLAGS,$(THERE) pkg-config --cflags $(PKGS))
PKG_LIBS    = $(call once,PKG_LIBS,$(THERE) pkg-config --libs $(PKGS) && echo -lbz2 $(if $(HDF5),,-lhdf5))
# What a library's versions do not have in common is in a folder for each, named by its first one.
VERSIONS    = $(call once,VERSIONS,CXX='$(CXX)' $(THERE) jobs/setup.sh --versions)
version     = $(firstword $(patsubst $(1)=%,%,$(filter $(1)=%,$(VERSIONS))))
HOUSE       = -Iinclude -Isrc \
              -Isrc/ports/cpu/onednn/$(if $(filter 2.%,$(call version,libdnnl-dev)),2,3) \
              -Isrc/data/external/hdf5/$(if $(filter 1.10.%,$(call version,libhdf5-dev)),1.10,1.12)
GXX_12      = $(call once,GXX_12,$(CXX) -dumpfullversion 2>/dev/null | grep '^12\.')

# -Werror only with g++ 12, for which the project is kept clean: new warnings of a newer compiler
# must not stop a user.
WERROR   ?= $(if $(GXX_12),-Werror)
WARNINGS  = -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wvla \
            -Wformat=2 -Wundef -Wmissing-declarations $(FALSE_ALARMS) $(WERROR)
# g++ 12 at -O3 sees overflows in fmt and std::string that are not there (GCC bugs 105329, 106757);
# -Wno-psabi: vectors are passed only inside one object file, so the ABI does not matter.
FALSE_ALARMS := -Wno-unknown-warning-option -Wno-stringop-overflow -Wno-stringop-overread \
                -Wno-restrict -Wno-psabi
# The two -fno flags change no computed value: nothing here reads errno or traps on arithmetic.
# Never -march=native: the program chooses its kernels' instruction set when it starts.
# -O3 for loops over numbers and -O1 elsewhere halves the time to build.
OPTIMIZE := -O1 -fno-math-errno -fno-trapping-math
NUMERIC  := -O3
ifneq ($(SANITIZE),)
# Loops over numbers are optimized, the rest is not: that halves the time to build. With UNCHECKED,
# the checks of each pointer are left out, which halves it again; address still sees bad pointers.
NUMERIC  := -O1
OPTIMIZE := $(if $(findstring fuzzer,$(SANITIZE)),-O1,-O0) -g1 -fno-omit-frame-pointer -fsanitize=$(SANITIZE) -fno-sanitize-recover=all \
            $(UNCHECKED:%=-fno-sanitize=%) -D_GLIBCXX_ASSERTIONS
FALSE_ALARMS += -Wno-maybe-uninitialized
WERROR   := # sanitizers make the compiler's flow warnings guess
endif
THIRD_PARTY = $(patsubst -I%,-isystem %,$(filter -I% -D%,$(MPI_CFLAGS)) $(PKG_CFLAGS)) \
              $(patsubst %,-isystem %,$(subst :, ,$(CPATH))) \
              -DOMPI_SKIP_MPICXX -DMPICH_SKIP_MPICXX
CXXFLAGS   ?=
COMPILE     = $(CXX) -std=c++20 $(OPTIMIZE) -fopenmp -pthread $(WARNINGS) $(HOUSE) \
              $(THIRD_PARTY) $(CXXFLAGS)
LDFLAGS    ?=
LINK        = $(CXX) -fopenmp -pthread $(if $(SANITIZE),-fsanitize=$(SANITIZE)) $(LDFLAGS)
HOST_LIBS   = $(MPI_LIBS) -ldnnl $(PKG_LIBS) $(GRPC_LIBS)
LIBS        = $(HOST_LIBS) $(CUDA_LIBS)

# ---- building --------------------------------------------------------------------------------
##@ Build

.PHONY: all
all: $(PROGRAM)  ## build the program into build/ (default)

# Rooms that compute, and those that each request passes, are optimized more than the rest.
COMPUTING := base $(if $(SANITIZE),,comm ports/mpi) ports/cpu
ANSWERING := serve/protocol serve/service serve/batching ports/http
in_rooms   = $(patsubst %,$(BUILD)/obj/src/%/%.o,$(1))
# What is first decides which copy of an inline function is linked. So the most optimized objects are
# the archive's first, and the commands come last; tests under sanitizers get copies that are checked.
OPTIMIZED := $(call in_rooms,$(COMPUTING) data pack $(ANSWERING))
WHOLE := -Wl,--whole-archive $(LIB) -Wl,--no-whole-archive
$(PROGRAM): $(APP_OBJ) $(LIB)
	@echo "  link    $@"
	@$(LINK) -o $@ $(WHOLE) $(APP_OBJ) $(LIBS)

# What MPI=none links, of this build's objects, for the tests.
NO_MPI := $(BUILD)/lockstep-without-mpi
$(NO_MPI): $(APP_OBJ) $(call objects,src/ports/none/mpi/no_mpi.cpp) $(LIB)
	@echo "  link    $@"
	@$(LINK) -o $@ $^ $(filter-out $(MPI_LIBS),$(LIBS))

# Created again each time, so that an object whose source was removed does not stay in the archive.
$(LIB): $(LIB_OBJ) $(BUILD)/build_id.o $(BUILD)/sources
	@echo "  archive $@"
	@rm -f $@ && $(AR) rcs $@ $(filter $(OPTIMIZED),$^) $(filter-out $(OPTIMIZED),$(filter %.o,$^))

$(UNIT): $(UNIT_OBJ) $(LIB)
	@echo "  link    $@"
	@$(LINK) -o $@ $(if $(SANITIZE),$(WHOLE)) $^ $(CATCH_LIBS) $(LIBS)

$(MPI_TESTS): $(call objects,$(MPI_SRC)) $(LIB)
	@echo "  link    $@"
	@$(LINK) -o $@ $^ $(CATCH_LIBS) $(LIBS)

$(GPU_TESTS): $(call objects,$(GPU_SRC)) $(LIB)
	@echo "  link    $@"
	@$(LINK) -o $@ $^ $(CATCH_LIBS) $(LIBS)

$(EMULATED): $(EMU_OBJ) $(call objects,$(EMU_SRC)) $(LIB)
	@echo "  link    $@"
	@$(LINK) -o $@ $^ $(CATCH_LIBS) $(HOST_LIBS)

$(BENCHES): $(BUILD)/bench/%: $(BUILD)/obj/tests/bench/programs/%.o $(LIB)
	@mkdir -p $(@D)
	@echo "  link    $@"
	@$(LINK) -o $@ $^ $(LIBS)

$(BUILD)/obj/%.o: %.cpp $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(CCACHE) $(COMPILE) $(EXTRA) -MMD -MP -c -o $@ $<

$(call pieced,$(filter src/%,$(PIECES))): $(BUILD)/sources
$(call pieced,$(filter tests/%,$(PIECES))): $(BUILD)/test-sources
$(call pieced,$(PIECES)): $(BUILD)/obj/%.o: $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  compile $(@D:$(BUILD)/obj/%=%)/{$(subst $(blank),$(,),$(basename $(notdir $($*))))}.cpp"
	@$(CCACHE) $(COMPILE) $(EXTRA) -Wno-subobject-linkage $(patsubst %,-include %,$(wordlist 2,$(words $($*)),$($*))) -MMD -MP \
	  -c -o $@ $(firstword $($*))
	@echo '$(firstword $($*)):' >>$(@:.o=.d)

$(BUILD)/obj/%.cu.o: %.cu $(BUILD)/archs $(BUILD)/cuda-flags
	@mkdir -p $(@D)
	@echo "  compile $<"
	@$(CCACHE) $(COMPILE_CUDA) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(BUILD)/obj/emulated/%.cu.o: %.cu $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  compile $< for the host"
	@$(CCACHE) $(COMPILE) $(NUMERIC) $(CUDA_HEADERS) -Wno-unknown-pragmas -I. -include tests/emulated/cuda/gpu.hpp \
	  -MMD -MP -MF $(@:.o=.d) -x c++ -c -o $@ $<

# The messages' code is not ours: its warnings are left out.
$(GRPC_MADE)/%.pb.cc: src/ports/grpc/%.proto | $(BUILD)/found
	@mkdir -p $(@D)
	@echo "  protoc  $<"
	@protoc --proto_path=$(<D) --cpp_out=$(@D) $<
$(GRPC_MADE)/%.pb.o: $(GRPC_MADE)/%.pb.cc $(BUILD)/flags
	@echo "  compile $<"
	@$(CCACHE) $(COMPILE) $(GRPC_CFLAGS) -w -c -o $@ $<

$(FRONTEND_KEPT)/include/cudnn_frontend.h: jobs/cudnn_frontend.sh
	@echo "  fetch   cudnn-frontend"
	@jobs/cudnn_frontend.sh $(FRONTEND_KEPT)

# The commands and the tests take most of the time to compile, and need not be fast. CLI11 compares
# each of hundreds of options with all others, at each start, so what includes it is optimized.
$(BUILD)/obj/src/app/%.o: EXTRA = -O0
$(BUILD)/obj/src/app/cli/%.o: EXTRA =
# What Catch2 3 has elsewhere than Catch2 2, and Catch2 3 itself, which is no header.
CATCH      = $(if $(filter 2%,$(call version,catch2)),2,3)
FOR_TESTS  = -I. -Itests/support/catch2/$(CATCH) $(CATCH_CFLAGS) -O1
CATCH_CFLAGS = $(patsubst -I%,-isystem %,$(call once,CATCH_I,$(THERE) pkg-config --cflags catch2 2>/dev/null))
CATCH_LIBS   = $(if $(filter 3,$(CATCH)),$(call once,CATCH_L,$(THERE) pkg-config --libs catch2 || echo -lCatch2))
$(BUILD)/obj/tests/%.o: EXTRA = $(FOR_TESTS)
# Catch2 itself is not checked by sanitizers.
$(BUILD)/obj/tests/support/harness/main.o: EXTRA = $(FOR_TESTS) $(if $(SANITIZE),-O0 -g0 -fno-sanitize=all)
$(BUILD)/obj/tests/bench/%.o: EXTRA = -I.
# What nearly every test includes is compiled once, into pch.hpp.gch. If the compiler cannot use
# that, it reads the header next to it. Catch2 silences a warning by a pragma, which is lost this
# way, and g++ 12 sees one more overflow in std::string that is not there.
PCH      := $(BUILD)/obj/tests/pch.hpp
WITH_PCH := $(filter-out %/main.o,$(sort $(filter $(BUILD)/obj/%,$(UNIT_OBJ)) $(call objects,$(MPI_SRC))))
$(WITH_PCH): $(PCH).gch
$(WITH_PCH): EXTRA = $(FOR_TESTS) -Wno-parentheses -Wno-array-bounds -Winvalid-pch -Wno-error=invalid-pch -include $(PCH)
$(PCH).gch: EXTRA = $(FOR_TESTS)
# Without these two settings ccache keeps nothing that uses a precompiled header.
$(WITH_PCH) $(PCH).gch: CCACHE := $(if $(CCACHE),CCACHE_SLOPPINESS=pch_defines$(,)time_macros $(CCACHE))
$(PCH): Makefile
	@mkdir -p $(@D)
	@echo '#include "tests/support/harness/pch.hpp"' > $@
$(PCH).gch: $(PCH) $(BUILD)/flags
	@echo "  compile tests/support/harness/pch.hpp"
	@$(CCACHE) $(COMPILE) $(EXTRA) -x c++-header -MMD -MP -MF $(PCH:.hpp=.d) -MT $@ -c -o $@ $<
-include $(PCH:.hpp=.d)
$(foreach port,cuda nccl,$(BUILD)/obj/src/ports/$(port)/%.o): EXTRA = $(CUDA_CFLAGS)
$(BUILD)/obj/tests/gpu/%.o: EXTRA = $(FOR_TESTS) $(CUDA_CFLAGS)
$(BUILD)/obj/tests/emulated/%.o: EXTRA = $(FOR_TESTS) $(NUMERIC) $(CUDA_HEADERS) -Wno-unknown-pragmas
$(filter $(BUILD)/obj/src/ports/cuda/% $(BUILD)/obj/src/ports/nccl/% $(BUILD)/obj/tests/gpu/%,\
  $(call objects,$(ARCHIVED) $(GPU_SRC))): | $(FRONTEND_HEADER)
$(call in_rooms,$(COMPUTING)): EXTRA = $(NUMERIC)
$(call in_rooms,$(ANSWERING)): EXTRA = $(if $(SANITIZE),,-O2)
$(BUILD)/obj/src/ports/grpc/%.o: EXTRA = $(if $(SANITIZE),,-O2) $(GRPC_CFLAGS)
$(filter $(BUILD)/obj/src/ports/grpc/%,$(LIB_OBJ)): $(GRPC_OBJ:.o=.cc)
# Pixels must not depend on whether the processor has fused multiplication.
$(BUILD)/obj/src/data/%.o: EXTRA = $(NUMERIC) -ffp-contract=off
$(BUILD)/obj/src/pack/%.o: EXTRA = $(if $(SANITIZE),,$(NUMERIC) -ffp-contract=off)

# The list of sources and the compile commands: these files are written only when their content
# changes, and then what depends on them is made again. Objects in a build folder that was copied
# from another place are newer than the sources here, but made from other ones.
record = mkdir -p $(@D); echo '$($(1))' | cmp -s - $@ || echo '$($(1))' > $@
COMPILED = $(PIECE) $(ARCHIVED) $(APP_SRC)
TESTS_COMPILED = $(PIECE) $(UNIT_SRC)
COMPILE_HERE = $(COMPILE) in $(CURDIR)
COMPILE_CUDA_HERE = $(COMPILE_CUDA) in $(CURDIR)
$(BUILD)/sources: FORCE
	@$(call record,COMPILED)
$(BUILD)/test-sources: FORCE
	@$(call record,TESTS_COMPILED)
$(BUILD)/flags: FORCE | $(BUILD)/found
	@$(call record,COMPILE_HERE)
$(BUILD)/archs: FORCE | $(BUILD)/found
	@$(call record,CUDA_ARCHS)
$(BUILD)/cuda-flags: FORCE | $(BUILD)/found
	@$(call record,COMPILE_CUDA_HERE)
$(BUILD)/tidy-flags: FORCE
	@$(call record,TIDY_FLAGS)
.PHONY: FORCE
FORCE:

# The build id covers everything that the bits of a training depend on (base/build_id.hpp). A commit
# alone does not change it, and when it changes nothing else is compiled again.
BUILD_ID = $(shell { find include src -type f -not -name '*.md' | LC_ALL=C sort | xargs cat; $(CXX) --version; \
             echo '$(COMPILE) $(NUMERIC) $(if $(WITH_CUDA),$(COMPILE_CUDA))'; } | sha256sum | cut -c 1-16)
BUILD_ID_SOURCE = namespace lockstep { const char* build_id() { return "$(BUILD_ID)"; } }
$(BUILD)/build_id.cpp: FORCE | $(BUILD)/found
	@$(call record,BUILD_ID_SOURCE)
$(BUILD)/build_id.o: $(BUILD)/build_id.cpp $(BUILD)/flags
	@$(CXX) -c -o $@ $<

# Checks that what the build needs is installed: before the first compile, once for each build
# folder, and again when CUDA is found elsewhere or gRPC is wanted.
$(BUILD)/found: $(BUILD)/cuda
	@$(if $(CROSS),jobs/setup.sh --check cross)
	@$(if $(filter-out $(FETCHED),$(SYSROOT)),,$(if $(CROSS),tests/debian/debian $(CROSS) root))
	@CXX='$(CXX)' MPICXX='$(MPICXX)' CUDA_LACKS='$(CUDA_LACKS)' $(THERE) jobs/setup.sh --check build $(if $(WITH_CUDA),cuda) $(WITH_GRPC)
	$(if $(WITH_CUDA),$(if $(CUDA_LACKS),,$(info $(CUDA_FOUND))),$(info $(CUDA_MISSING)))
	@touch $@
$(BUILD)/cuda: FORCE
	@$(call record,CUDA_SITE)
CUDA_SITE = $(MPICXX) $(if $(WITH_CUDA),$(NVCC) $(CUDNN_LIB) $(NCCL_LIB),$(CUDA_LACKS))$(WITH_GRPC:%= and %)

-include $(patsubst %.o,%.d,$(LIB_OBJ) $(APP_OBJ) $(EMU_OBJ) $(UNIT_OBJ)\
  $(call objects,$(MPI_SRC) $(GPU_SRC) $(EMU_SRC) $(wildcard tests/bench/programs/*.cpp)))

.PHONY: unit-built mpi-built no-mpi-built usual-tests tests
no-mpi-built: $(NO_MPI)
unit-built: $(UNIT)
mpi-built: $(MPI_TESTS)
usual-tests: $(UNIT) $(MPI_TESTS) $(GPU_TESTS) $(NO_MPI) $(BUILD)/bench/two_level
tests: usual-tests $(EMULATED)

SHARE = $(DESTDIR)$(PREFIX)/share
# What is made of jobs/install, and where: the manual page is what this program's --help says.
KIT   = "$(SHARE)/man/man1/lockstep.1" "$(SHARE)/bash-completion/completions/lockstep" \
        "$(SHARE)/modulefiles/lockstep/$(VERSION)" "$(SHARE)/modulefiles/lockstep/$(VERSION).lua"
.PHONY: install
install: $(PROGRAM)  ## install the program, its recipes, manual page and modules below PREFIX (/usr/local), DESTDIR is respected
	install -D -m 755 $(PROGRAM) "$(DESTDIR)$(PREFIX)/bin/lockstep"
	install -D -m 644 -t "$(SHARE)/lockstep/recipes" $(wildcard jobs/recipes/*.toml)
	jobs/install/install.sh $(PROGRAM) $(KIT)

.PHONY: uninstall
uninstall:  ## remove it again
	rm -f "$(DESTDIR)$(PREFIX)/bin/lockstep" $(KIT)
	rm -rf "$(SHARE)/lockstep/recipes"

# What `lockstep --version` says is the archive's name. All that git has is in it, and no .git: the
# build id is made from the sources alone.
VERSION = $(call once,VERSION,sed -n 's/.* program_version = "lockstep \(.*\)";/\1/p' src/app/main.cpp)
DIST    = lockstep-$(VERSION)
.PHONY: dist
dist:  ## pack what is committed into build/dist/lockstep-VERSION.tar.gz, a release
	@test -e .git || { echo 'make dist: it packs what git has, and this folder is not a checkout'; exit 2; }
	@test -n '$(VERSION)' || { echo 'make dist: src/app/main.cpp has no program_version'; exit 2; }
	@test -z "$$(git status --porcelain)" || echo '  note    what is not committed is left out'
	@mkdir -p $(BUILD)/dist
	@echo "  pack    $(BUILD)/dist/$(DIST).tar.gz"
	@git archive --prefix=$(DIST)/ --output=$(BUILD)/dist/$(DIST).tar.gz HEAD

.PHONY: clean
clean:  ## remove build/ (data sets and runs stay)
	rm -rf $(BUILD)

# ---- running ---------------------------------------------------------------------------------
##@ Run

# Open MPI refuses to run as root without these; containers and CI often have no other user.
AS_ROOT     := $(if $(filter 0,$(shell id -u)),OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
RANKS       ?= $(or $(if $(WITH_CUDA),$(filter-out 0,$(CARDS))),2)
# lockstep binds its ranks itself: mpirun would give small jobs one core for each rank. mpirun
# counts a whole core as a slot, and many machines with two processors have only one.
MPIRUN      ?= mpirun --bind-to none --oversubscribe
CONFIG      ?= jobs/configs/shapes.toml
SHAPES      ?= data/shapes
MAKE_SHAPES ?= $(PROGRAM) pack --from shapes --out $(SHAPES)
# In a recipe: true if data set $(1) is absent, or was packed by an older lockstep and cannot be
# read.
to_be_made   = ! test -e $(1)/train || $(PROGRAM) info $(1)/train 2>&1 | grep -q 'pack the data again'

.PHONY: train
train:  ## install what is missing, build, make the default data set, train it on RANKS= (GPUs, else 2)
	@CUDA_LACKS='$(CUDA_LACKS)' jobs/setup.sh build $(if $(WITH_CUDA),cuda) $(WITH_GRPC)
	@$(MAKE) --no-print-directory $(PROGRAM) CUDA_ARCHS='$(FIRST_ARCHS)'
	@if $(call to_be_made,$(SHAPES)); then $(AS_ROOT) $(MAKE_SHAPES) --force; fi
	$(AS_ROOT) $(MPIRUN) -np $(RANKS) $(PROGRAM) train --config $(CONFIG)

.PHONY: cifar10
cifar10:  ## pack and train CIFAR-10 from SRC=folder of class folders
	@test -n "$(SRC)" || { echo 'make cifar10: say where the images are: make cifar10 SRC=folder'; exit 2; }
	@jobs/setup.sh build
	@$(MAKE) --no-print-directory $(PROGRAM)
	@$(AS_ROOT) LOCKSTEP=$(PROGRAM) RANKS=$(RANKS) jobs/cifar10.sh "$(SRC)"

.PHONY: bench
bench:  ## measure speed and memory, compared with PyTorch (MODELS= PRECISIONS= ROUNDS= STEPS= PARTS= TORCH=)
	@jobs/setup.sh bench
	@$(MAKE) --no-print-directory $(PROGRAM) $(BENCHES)
	@BUILD=$(BUILD) tests/bench/run $(PARTS)

# ---- checking --------------------------------------------------------------------------------
##@ Check

.PHONY: check
check:  ## the layer law and the quick unit tests, for the edit loop (FILTER=part of a name, or [tag])
	@jobs/setup.sh test
	@$(MAKE) --no-print-directory $(UNIT)
	@BUILD=$(BUILD) FILTER='$(FILTER)' TIER=check tests/run layers unit

.PHONY: test
test:  ## install what is missing, build, run the tests (FILTER=part of a name, or [tag]: of CI's, too)
	@CUDA_LACKS='$(CUDA_LACKS)' jobs/setup.sh test $(if $(WITH_CUDA),cuda) $(WITH_GRPC)
	@[ "$$(id -u)" != 0 ] || jobs/setup.sh cluster || echo 'tests that need Slurm will be skipped'
	@$(MAKE) --no-print-directory $(PROGRAM) $(if $(FILTER),tests,usual-tests)
	@BUILD=$(BUILD) FILTER='$(FILTER)' tests/run

.PHONY: test-all
test-all:  ## CI's tests and repetitions: more ranks, long fuzzing, sanitizers, each network fault
	@CUDA_LACKS='$(CUDA_LACKS)' jobs/setup.sh ci $(if $(WITH_CUDA),cuda) $(WITH_GRPC)
	@$(MAKE) --no-print-directory $(BUILD)/clients/made || echo "tests with PyPI's programs will be skipped"
	@[ "$$(id -u)" != 0 ] || jobs/setup.sh cluster || echo 'tests that need Slurm will be skipped'
	@$(MAKE) --no-print-directory $(PROGRAM) $(NO_MPI)
	@BUILD=$(BUILD) FILTER='$(FILTER)' TIER=all TSAN_TAGS='$(TSAN_TAGS)' tests/run --make \
	  layers unit mpi gpu emulated e2e cluster lint format asan tsan

.PHONY: test-clients
test-clients: $(BUILD)/clients/made  ## tests with PyTorch, ONNX Runtime and others, after installing them (6 GB)
	@jobs/setup.sh test $(WITH_GRPC)
	@$(MAKE) --no-print-directory $(PROGRAM)
	@BUILD=$(BUILD) FILTER='$(FILTER)' TIER=ci tests/run clients

CLIENTS := $(addprefix tests/support/clients/,install.sh triton.txt kserve.txt schemathesis.txt \
             requirements.txt)
$(BUILD)/clients/made: $(CLIENTS)
	@jobs/setup.sh clients
	@echo "  install $(@D) from $(wordlist 2,5,$(CLIENTS))"
	@$(firstword $(CLIENTS)) $(@D)

.PHONY: test-cluster
test-cluster:  ## the tests on a Slurm cluster of several nodes, all on this machine (root)
	@jobs/setup.sh test cluster
	@$(MAKE) --no-print-directory $(PROGRAM)
	@BUILD=$(BUILD) FILTER='$(FILTER)' TIER=ci tests/run cluster

.PHONY: test-trixie
test-trixie:  ## build and test in Debian 13, in a folder, with its libraries (root, 2 GB; PARTS="unit e2e")
	@FILTER='$(FILTER)' tests/debian/debian trixie test $(or $(PARTS),unit mpi e2e cluster) || \
	  { status=$$?; [ $$status = 77 ] && echo '0 passed, 0 failed, 1 skipped'; }

.PHONY: test-arm
test-arm:  ## build for 64-bit Arm, and run the unit tests emulated (PROCESSORS="max,sve=off neoverse-n1 a64fx")
	@jobs/setup.sh build cross
	@FILTER='$(FILTER)' tests/debian/debian aarch64 test

# The tests themselves are the plain build's objects: what is checked is the code that they call.
POINTERS := null,alignment,vptr,object-size,pointer-overflow,nonnull-attribute,returns-nonnull-attribute
ASAN = BUILD=$(BUILD)/asan UNIT_OBJ='$(UNIT_OBJ)' SANITIZE=address,undefined CUDA=0
.PHONY: asan-built
asan-built: $(UNIT_OBJ)  # with QUICK=1: without checks of each pointer, as CI does
	@$(MAKE) --no-print-directory $(BUILD)/asan/unit_tests fuzzers $(ASAN) UNCHECKED=$(if $(QUICK),$(POINTERS))

.PHONY: asan
asan:  ## unit tests and short fuzzing under the address and undefined-behaviour sanitizers
	@jobs/setup.sh test
	@$(MAKE) --no-print-directory asan-built
	@$(MAKE) --no-print-directory sanitized PARTS='unit fuzz' $(ASAN)

# Only code without OpenMP, because libgomp's barriers look like races to the thread sanitizer.
TSAN_TAGS := [loader],[sampler],[exchange],[copy],[lost],[heartbeat],[watch]
TSAN = BUILD=$(BUILD)/tsan SANITIZE=thread CUDA=0
.PHONY: tsan-built
tsan-built:
	@$(MAKE) --no-print-directory $(BUILD)/tsan/unit_tests $(TSAN)

.PHONY: tsan
tsan:  ## loader, sampler, copying and exchange tests under the thread sanitizer
	@jobs/setup.sh test
	@$(MAKE) --no-print-directory sanitized $(TSAN) FILTER='$(or $(FILTER),$(TSAN_TAGS))'

# libFuzzer belongs to clang; clang 16 is the first that knows std::source_location. clang takes
# instruction sets only from the command line, not from a pragma.
FUZZ_CXX ?= clang++-16
FUZZ_FOR ?= $(if $(RUNS),3600,5)
FUZZERS  := $(patsubst tests/fuzz/%.cpp,$(BUILD)/fuzz/%,\
              $(filter-out %/driver.cpp,$(wildcard tests/fuzz/*.cpp tests/fuzz/*/*.cpp)))
FUZZED   := $(filter-out src/pack/pack% %/loader.cpp %/shapes.cpp,\
            $(call found,src/base src/data src/pack,*.cpp)) $(call found,src/config src/nn,*.cpp) \
            $(addprefix src/backend/,parameters.cpp recompute.cpp winograd.cpp) \
            $(addprefix src/model/,checkpoint.cpp model.cpp network_text.cpp seal.cpp) \
            $(call found,src/model/formats src/serve/protocol,*.cpp)
.PHONY: fuzz
fuzz:  ## fuzz the code that reads files, with sanitizers (SECONDS=5 or RUNS= inputs for each of TARGETS=)
	@jobs/setup.sh fuzz
	@$(MAKE) --no-print-directory fuzzers BUILD=$(BUILD)/clang CXX='$(FUZZ_CXX)' CUDA=0 \
	  SANITIZE=fuzzer-no-link,address,undefined \
	  FALSE_ALARMS='-Wno-unknown-warning-option -Wno-unknown-pragmas -Wno-shadow'
	@BUILD=$(BUILD)/clang SECONDS_EACH='$(or $(filter-out 0,$(SECONDS)),$(FUZZ_FOR))' RUNS_EACH='$(RUNS)' \
	  tests/fuzz/run $(TARGETS)

# Without clang, our own driver replaces libFuzzer.
FUZZ_WITH = $(if $(findstring fuzzer,$(SANITIZE)),$(call objects,$(FUZZED)) $(BUILD)/build_id.o,\
              $(BUILD)/obj/tests/fuzz/driver.o $(LIB))
.PHONY: fuzzers
fuzzers: $(FUZZERS)
-include $(patsubst $(BUILD)/fuzz/%,$(BUILD)/obj/tests/fuzz/%.d,$(FUZZERS) $(BUILD)/fuzz/driver)
$(FUZZERS): $(BUILD)/fuzz/%: $(BUILD)/obj/tests/fuzz/%.o $(FUZZ_WITH)
	@mkdir -p $(@D)
	@echo "  link    $@"
	@$(CXX) -pthread -fsanitize=$(subst fuzzer-no-link,fuzzer,$(SANITIZE)) -o $@ $^ $(PKG_LIBS)
ifneq ($(findstring fuzzer,$(SANITIZE)),)
# src/base reads no files, and libFuzzer would record each of its comparisons. Only the HDF5 wrapper
# and the wire of protocol buffers read some.
$(BUILD)/obj/src/base/%.o: EXTRA = -O2 -fno-sanitize=all
$(BUILD)/obj/src/base/files/h5.o $(BUILD)/obj/src/base/wire.o: EXTRA =
$(BUILD)/obj/src/data/%_avx2.o: EXTRA += -mavx2 -mfma
$(BUILD)/obj/src/data/%_avx512.o: EXTRA += -mavx512f -mavx512bw -mavx512dq -mavx512vl
endif

.PHONY: sanitized
sanitized: $(UNIT) $(if $(filter fuzz,$(PARTS)),fuzzers)
	@BUILD=$(BUILD) FILTER='$(FILTER)' LOCKSTEP_TEST_SECONDS=300 tests/run $(or $(PARTS),unit)

.PHONY: format
format:  ## rewrite the sources in the project's format
	@jobs/setup.sh format
	@clang-format -i $(FORMATTED)

.PHONY: check-format
check-format:  ## fail on a source that is not in the project's format
	@jobs/setup.sh format
	@clang-format --dry-run -Werror $(FORMATTED)

.PHONY: check-words
check-words:  ## fail on words that the project does not use (WORDS="file folder ...": only in those)
	@tests/check_words $(WORDS)

.PHONY: check-layers
check-layers:  ## fail on an include that points upward or sideways, on a long function, and so on
	@tests/check_layers
	@tests/check_sizes

# Headers are checked through the sources that include them. clang 16 is the first that knows
# std::source_location. omp.h is among g++'s own headers; its malloc attribute has arguments that
# only g++ knows.
CLANG_TIDY ?= clang-tidy-16
CHANGED    ?=
FILES      ?= $(filter $(ARCHIVED) $(APP_SRC),$(if $(CHANGED),\
                $(shell git diff --name-only $(CHANGED)),$(ARCHIVED) $(APP_SRC)))
LINTED      = $(FILES:%=$(BUILD)/lint/%.ok)
TIDY_FLAGS ?=
LINT_FLAGS  = -std=c++20 $(HOUSE) -I. $(THIRD_PARTY) $(CUDA_CFLAGS) $(GRPC_CFLAGS) -Wno-unknown-pragmas \
              -idirafter $(call once,GXX_HEADERS,$(CXX) -print-file-name=include) \
              '-D__malloc__(...)=__malloc__' $(if $(filter %.cu,$< $*),-x c++ -include tests/emulated/cuda/gpu.hpp)
.PHONY: lint
lint:  ## plain words, and clang-tidy on src/ (CHANGED=commit: what differs; FILES="a.cpp b.cu ...")
	@jobs/setup.sh lint
	@tests/check_words
	@$(MAKE) --no-print-directory --keep-going --output-sync linted

TIDY = $(CLANG_TIDY) --quiet $(TIDY_FLAGS) $< -- $(LINT_FLAGS) 2>&1 | grep -v ' warnings generated'; \
       test $${PIPESTATUS[0]} -eq 0
.PHONY: linted linted-gpu
linted: $(LINTED)
$(BUILD)/lint/%.ok: % .clang-tidy $(BUILD)/flags $(BUILD)/tidy-flags
	@mkdir -p $(@D)
	@echo "  lint    $<"
	@$(CXX) $(LINT_FLAGS) -MM -MP -MT $@ -MF $(@:.ok=.d) $<
	@$(TIDY)
	@touch $@
# Whether another compiler, or other libraries, take the sources (FILES= as in `make lint`).
.PHONY: parsed
parsed: $(FILES:%=$(BUILD)/parse/%.ok)
$(BUILD)/parse/%.ok: % $(BUILD)/flags
	@mkdir -p $(@D)
	@echo "  parse   $<"
	@$(CXX) $(WARNINGS) $(LINT_FLAGS) -Werror -fsyntax-only $<
	@touch $@
# What no test here runs, in two pieces, because its headers take longest: the kernels, and the rest.
GPU_PIECES := $(BUILD)/lint/gpu.cpp $(BUILD)/lint/gpu.cu
linted-gpu: $(GPU_PIECES:%=%-checked)
	@$(if $(KERNELS),,echo 'nothing of src/ports/cuda is built here'; false)
$(GPU_PIECES:%=%-checked): %-checked: $(filter src/ports/cuda/% src/ports/nccl/%,$(ARCHIVED)) .clang-tidy
	@mkdir -p $(@D)
	@printf '#include "%s"\n' $(filter src/%$(suffix $*),$^) > $*
	@echo "  lint    $(filter src/%$(suffix $*),$^)"
	@$(subst $<,$*,$(TIDY))
$(GPU_PIECES:%=%-checked) $(filter $(BUILD)/lint/src/ports/cuda/% $(BUILD)/lint/src/ports/nccl/%,$(LINTED)): \
  | $(FRONTEND_HEADER)
-include $(LINTED:.ok=.d)

##@ GPUs

# Packs a folder for a machine that has a GPU and little else; see jobs/bundle.sh.
BUNDLE := $(BUILD)/bundle
BUNDLED = $(PROGRAM) $(GPU_TESTS) jobs/bundle.sh tests/gpu/gpu-check $(wildcard tests/gpu/*.bash) $(wildcard tests/bench/torch_*.py) \
          $(wildcard jobs/configs/* jobs/gpus/*)
.PHONY: bundle
bundle: $(BUNDLE)/made  ## pack program, GPU tests and libraries into build/bundle/, to be copied
$(BUNDLE)/made: $(BUNDLED)
	@jobs/bundle.sh $(BUILD) $(BUNDLE)

.PHONY: gpu-check
gpu-check: $(BUNDLE)/made  ## all GPU tests but speed, within BUDGET_S=560 (SECTIONS= CIFAR10= REFERENCE= OUT=)
	@OUT='$(or $(OUT),$(BUILD))' $(BUNDLE)/gpu-check

.PHONY: gpu-bench
gpu-bench: $(BUNDLE)/made  ## speed on a GPU: each step compared with its floor, and PyTorch (BUDGET_S=560)
	@OUT='$(or $(OUT),$(BUILD))' SECTIONS='speed torch' $(BUNDLE)/gpu-check

##@ Help

.PHONY: help
help:  ## this list
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
