// Overflows a signed integer: the undefined-behaviour sanitizer must report it.
#include <limits>

int main(int argc, char**) {
  const volatile int largest = std::numeric_limits<int>::max();
  return largest + argc > 0 ? 0 : 1;
}
