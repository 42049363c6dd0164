// Reads freed memory: the address sanitizer must report it.
#include <memory>

int main(int argc, char**) {
  auto number = std::make_unique<int>(argc);
  const volatile int* const dangling = number.get();
  number.reset();
  return *dangling == 0 ? 1 : 0;
}
