// Linked into every test of the thread sanitizer's preset. Debian's Abseil is not instrumented, so the sanitizer does
// not see that a status is deleted only by whoever drops the last reference.
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*::Status::Unref\n";
}
