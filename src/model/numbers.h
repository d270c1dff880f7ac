// Numbers of DyNet's text files: float32 as C's printf("%+.8e ") writes it, read back exactly.
#pragma once

namespace dyc {

constexpr int kNumberWidth = 16;  // of a finite number with its blank; inf and nan are shorter

// Writes value and a blank, at most kNumberWidth characters; returns the end.
char* write_number(float value, char* out);

// Reads the number [begin, end), of any width, with or without an exponent, or inf or nan. False if it is
// none, or too large for a float32.
bool read_number(const char* begin, const char* end, float* value);

// The same for the kNumberWidth characters that write_number() makes of a number; false if they have
// another form or need read_number().
bool read_fixed_number(const char* begin, float* value);

}  // namespace dyc
