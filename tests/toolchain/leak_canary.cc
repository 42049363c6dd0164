// Loses memory: the leak sanitizer must report it at the end.
int main(int argc, char**) {
  volatile int* lost = new int[100];
  lost[0] = argc;
  lost = nullptr;
  return lost == nullptr ? 0 : 1;
}
