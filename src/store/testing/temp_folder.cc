#include "store/testing/temp_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <stdexcept>

namespace millrace {

TempFolder::TempFolder() : path_((std::filesystem::temp_directory_path() / "millrace-test-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder " + path_);
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace millrace
