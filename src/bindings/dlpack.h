// The structs of DLPack 1.0, an exchange format of arrays: declared after its specification.
#pragma once
#include <cstdint>

namespace dyc::py::dlpack {

enum DeviceType : int32_t { kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13 };
enum TypeCode : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };
constexpr uint64_t kReadOnly = 1, kCopied = 2;  // flags

struct Place {
  int32_t type, id;
};
struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct Array {
  void* data;
  Place device;
  int32_t axes;
  DataType type;
  int64_t *shape, *strides;  // in elements; null strides: row-major without gaps
  uint64_t offset;           // in bytes
};
struct Managed {
  static constexpr const char *kName = "dltensor", *kUsed = "used_dltensor";
  Array array;
  void* context;
  void (*deleter)(Managed*);
};
struct Version {
  uint32_t major, minor;
};
struct Versioned {
  static constexpr const char *kName = "dltensor_versioned", *kUsed = "used_dltensor_versioned";
  Version version;
  void* context;
  void (*deleter)(Versioned*);
  uint64_t flags;
  Array array;
};

}  // namespace dyc::py::dlpack
