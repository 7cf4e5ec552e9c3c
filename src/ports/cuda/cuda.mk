# Finds what GPUs need, for the Makefile: nvcc, cuDNN 9 and NCCL in CUDA_HOME, CUDNN_HOME and
# NCCL_HOME, or where the toolkit's installer, modules and Debian's packages put them. CUDA=0 builds
# without CUDA, CUDA=1 requires it. Reading this file only looks at files; anything slow is a
# variable that runs when a recipe needs it.

CUDA_HOME   ?= $(patsubst %/bin/nvcc,%,$(firstword $(wildcard /usr/local/cuda/bin/nvcc) \
                 $(wildcard $(addsuffix /nvcc,$(subst :, ,$(PATH))))))
find_in      = $(firstword $(wildcard $(addsuffix /$(2),$(1))))
# CUDA_TARGET: with CROSS, a folder with include/ and lib/ of that processor's runtime, where the
# toolkit has none (jobs/cuda_aarch64.sh makes one). It lacks the headers that all processors share.
CUDA_TARGET ?=
toolkit     := $(if $(CROSS),$(CUDA_TARGET) $(CUDA_HOME)/targets/sbsa-linux,\
                 $(CUDA_HOME) $(CUDA_HOME)/targets/*)
USR         := $(SYSROOT)/usr
header_dirs  = $(if $(1),$(1)/include,$(toolkit:%=%/include) $(USR)/include $(USR)/include/*-linux-gnu)
library_dirs = $(if $(1),$(1)/lib64 $(1)/lib,\
                 $(toolkit:%=%/lib64) $(toolkit:%=%/lib) $(USR)/lib64 $(USR)/lib/*-linux-gnu)

NVCC        := $(wildcard $(CUDA_HOME)/bin/nvcc)
CUDA_H      := $(call find_in,$(header_dirs),cuda_runtime.h)
CUDART      := $(call find_in,$(library_dirs),libcudart_static.a)
CUDNN_H     := $(call find_in,$(call header_dirs,$(CUDNN_HOME)),cudnn_version.h)
CUDNN_LIB   := $(call find_in,$(call library_dirs,$(CUDNN_HOME)),libcudnn.so.9)
NCCL_H      := $(call find_in,$(call header_dirs,$(NCCL_HOME)),nccl.h)
NCCL_LIB    := $(call find_in,$(call library_dirs,$(NCCL_HOME)),libnccl.so.2)
CUDA_LACKS  := $(strip $(if $(and $(NVCC),$(CUDA_H),$(CUDART)),,nvcc) \
                 $(if $(and $(CUDNN_H),$(CUDNN_LIB)),,cuDNN-9) $(if $(and $(NCCL_H),$(NCCL_LIB)),,NCCL))
CUDA        ?= $(if $(CUDA_LACKS),0,1)
WITH_CUDA   := $(filter-out 0,$(CUDA))

# One folder for all builds: its content is pinned.
FRONTEND_KEPT   := build/cudnn-frontend
CUDNN_FRONTEND  ?= $(FRONTEND_KEPT)
FRONTEND_HEADER  = $(if $(filter $(FRONTEND_KEPT),$(CUDNN_FRONTEND)),\
                     $(FRONTEND_KEPT)/include/cudnn_frontend.h)

# Machine code for these, and PTX of the last one for newer GPUs. Those that nvcc does not know are
# left out. A first `make train` builds for one: that of the installed GPU, or the one that all can
# run.
CUDA_ARCHS  ?= 80 90 100
KNOWN_ARCHS  = $(call once,KNOWN_ARCHS,$(NVCC) --list-gpu-arch | sed 's/compute_//')
ARCHS        = $(filter $(KNOWN_ARCHS),$(CUDA_ARCHS))
GENCODE      = $(foreach arch,$(ARCHS),-gencode arch=compute_$(arch)$(,)code=sm_$(arch)) \
               -gencode arch=compute_$(lastword $(ARCHS))$(,)code=compute_$(lastword $(ARCHS))
CARDS        = $(call once,CARDS,nvidia-smi -L 2>/dev/null | grep -c '^GPU')
CARD_ARCHS   = $(call once,CARD_ARCHS,nvidia-smi --query-gpu=compute_cap --format=csv$(,)noheader \
                 2>/dev/null | tr -d . | sort -un)
FIRST_ARCHS  = $(or $(shell cat $(BUILD)/archs 2>/dev/null),$(CARD_ARCHS),80)

# The kept folder may be filled by the first compile: its path does not depend on what it holds.
# Debian's own headers are found without -isystem; with it they would hide the compiler's.
cuda_headers = $(filter-out $(USR)/include,$(sort $(patsubst %/,%,\
                 $(dir $(CUDA_H) $(CUDNN_H) $(NCCL_H)))))
CUDA_HEADERS = $(addprefix -isystem ,$(cuda_headers) $(if $(CROSS),$(CUDA_HOME)/include))
CUDA_CFLAGS  = $(CUDA_HEADERS) $(if $(WITH_CUDA),\
                 -isystem $(if $(FRONTEND_HEADER),$(CUDNN_FRONTEND)/include,\
                   $(firstword $(wildcard $(CUDNN_FRONTEND)/include) $(CUDNN_FRONTEND))))
NVCCFLAGS   ?=
# Warning 128: nvcc calls a loop after `if constexpr (...) return` unreachable.
COMPILE_CUDA = $(NVCC) -std=c++20 -O3 --expt-relaxed-constexpr -diag-suppress 128 -lineinfo \
               -Xfatbin -compress-all -ccbin $(firstword $(CXX)) \
               $(addprefix -Xcompiler ,$(wordlist 2,9,$(CXX))) $(GENCODE) -Iinclude -Isrc $(CUDA_CFLAGS) \
               -Xcompiler -Wall$(,)-Wextra $(if $(WERROR),-Werror all-warnings) $(NVCCFLAGS)
# The runtime is linked statically. libcuda is not linked at all: its users open it when there is a
# driver, so that the program starts without one.
library_path = $(filter-out $(USR)/lib%,$(sort $(patsubst %/,%,$(dir $(CUDNN_LIB) $(NCCL_LIB)))))
CUDA_LIBS    = $(if $(WITH_CUDA),$(CUDNN_LIB) $(NCCL_LIB) $(CUDART) -ldl -lrt \
                 $(addprefix -Wl$(,)-rpath$(,),$(library_path)))

version_of   = $(shell awk '/define (CUDNN|NCCL)_(MAJOR|MINOR|PATCH|PATCHLEVEL) / \
                 { v = v dot $$3; dot = "." } END { print v }' $(1))
nvcc_version = $(shell $(NVCC) --version | sed -n 's/.* V\([0-9.]*\)$$/\1/p')
define CUDA_FOUND
  cuda    $(nvcc_version) in $(CUDA_HOME), code for $(ARCHS:%=sm_%)
  cudnn   $(call version_of,$(CUDNN_H)) in $(CUDNN_LIB)
  nccl    $(call version_of,$(NCCL_H)) in $(NCCL_LIB)
endef
define CUDA_MISSING
  cuda    none: built for CPUs only$(if $(CUDA_LACKS), (not found: $(CUDA_LACKS)))
endef
