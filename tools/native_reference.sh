#!/usr/bin/env bash
# Builds the real DyNet for the machine at hand, a harder reference than PyPI's wheel of generic code:
#
#     tools/native_reference.sh FOLDER [eigen|mkl]
#
# FOLDER/bin/python then has it, for benchmarks/vs_dynet.py --reference-python; with mkl, its products are
# MKL's. Needs Python 3.8 ($PYTHON38), cmake, make, a C++ compiler, Eigen 3.4 (Debian's libeigen3-dev; another
# folder: $EIGEN3), 2 GB, and some ten minutes. MARCH=x86-64-v3 builds it for AVX2, to be compared with
# DYNET_COMPAT_ISA=avx2 on a machine that has AVX-512. MKL is PyPI's of 2019, which can be told to use AVX-512
# on processors of other makers; later ones run generic code there.
set -euo pipefail
PYTHON38=${PYTHON38:-python3.8}
mkdir -p "${1:?a folder}/build"
eigen=${EIGEN3:-/usr/include/eigen3}
[[ -e $eigen/Eigen/Dense ]] || { echo "$eigen has no Eigen: install libeigen3-dev or set EIGEN3" >&2; exit 1; }
folder=$(cd "$1" && pwd) kind=${2:-eigen}
[[ $kind == eigen || $kind == mkl ]] || { echo "$kind: expected eigen or mkl" >&2; exit 1; }
build=$folder/build python=$folder/bin/python

"$PYTHON38" -m venv "$folder"
"$python" -m pip install --quiet "numpy<1.25" "cython<3" "setuptools==56.0.0" wheel

# Wheels are archives: name, version, tag of Python, what to take of them, where to.
unpack() {
  "$python" -m pip download --quiet --no-deps --only-binary :all: --python-version "$3" \
    --platform manylinux1_x86_64 --dest "$build" "$1==$2"
  (cd "$build" && mkdir -p "$5" && for wheel in "${1//-/_}-$2"-*.whl; do
    "$python" -m zipfile -e "$wheel" "unpacked-$1"
  done && cp -r "unpacked-$1"/$4 "$5")
}
options=()
if [[ $kind == mkl ]]; then
  for name in mkl mkl-include intel-openmp; do unpack $name 2019.0 38 "*.data/data/*" mkl; done
  mkdir -p "$folder/lib" && cp -r "$build/mkl/lib/." "$folder/lib"
  options=(-DMKL=TRUE "-DMKL_ROOT=$build/mkl")
  echo 'import os; os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "7")' \
    > "$(echo "$folder"/lib/python3.8/site-packages)/sitecustomize.py"
fi

# PyPI calls the source distribution dyNET.
"$python" -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation --dest "$build" "dynet==2.1.2"
tar xzf "$build/dyNET-2.1.2.tar.gz" -C "$build"
cmake -S "$build/dyNET-2.1.2" -B "$build/cmake" "-DEIGEN3_INCLUDE_DIR=$eigen" "-DPYTHON=$python" \
  -DRELEASE_OPT_LEVEL=3 -DCMAKE_BUILD_TYPE=Release "-DCMAKE_INSTALL_PREFIX=$folder" "${options[@]}" \
  "-DCMAKE_CXX_FLAGS=-Wno-ignored-attributes -Wno-deprecated-declarations"
# DyNet's build adds -march=native behind any flags that it is given.
grep -rl --include=flags.make -e -march=native "$build/cmake" \
  | xargs -r sed -i "s/-march=native/-march=${MARCH:-native}/"
CFLAGS="-O3 -march=${MARCH:-native} -Wno-ignored-attributes" make -C "$build/cmake" -j"$(nproc)"
cp "$build"/cmake/python/{_dynet*.so,dynet.py,dynet_config.py,dynet_viz.py} "$folder/lib/python3.8/site-packages/"
"$python" -c "import dynet"
echo "$python"
