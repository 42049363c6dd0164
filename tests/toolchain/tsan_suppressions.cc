// Linked into every test of the thread sanitizer's preset. Debian's Abseil is not instrumented, so the sanitizer does
// not see that a status is deleted only by the thread that drops the last reference. If the compiler makes that a tail
// call, the frame that is left is that of the status's owner.
extern "C" const char* __tsan_default_suppressions() {
  return "race:absl::*::Status::Unref\n"
         "race:std::_Sp_counted_ptr_inplace<millrace::Lister::Shared*_M_dispose\n";
}
