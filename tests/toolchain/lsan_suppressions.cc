// What the leak checker of AddressSanitizer must not report, for tests that draw.

// cairo never gives back the pattern of the font that it has found: some hundred bytes a font, once in a process.
extern "C" const char* __lsan_default_suppressions() {  // NOLINT: its name is the sanitizer's
  return "leak:libfontconfig\n";
}
