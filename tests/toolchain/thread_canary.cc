// Writes one number from two threads without order: the thread sanitizer must report it, however the two happen to be
// scheduled.
#include <thread>

int main() {
  int shared = 0;
  std::thread other([&shared] { shared = 1; });
  shared = 2;
  other.join();
  return 0;
}
