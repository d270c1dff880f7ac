// Memory of vectors.
#pragma once
#include <cstddef>
#include <vector>

namespace dyc {

template <class T>
size_t bytes_in(const std::vector<T>& v) {
  return v.capacity() * sizeof(T);
}

template <class... T>
void shrink_to_fit(std::vector<T>&... each) {
  (each.shrink_to_fit(), ...);
}

}  // namespace dyc
