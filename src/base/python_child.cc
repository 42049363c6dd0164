#include "base/python_child.h"

#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/process.h"

namespace millrace {

namespace {

// Nothing but `sys`, which is built in, is imported before the current folder is gone from the path. PYTHONSAFEPATH
// would do alone, but a Python before 3.11 does not know it.
constexpr std::string_view kLeaveFolder = R"(import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import os
os.environ["PYTHONSAFEPATH"] = "1"
)";

constexpr std::string_view kRunModule = R"(import runpy
del sys.argv[0]
try:
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
except ImportError as error:
    sys.exit(f"{sys.executable}: {error}; install it, or name a Python that has it by --python")
)";

namespace fs = std::filesystem;

bool IsProgram(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

bool IsInPath(const std::string& name) {
  std::istringstream folders(EnvironmentValue("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty() && IsProgram(fs::path(folder) / name)) return true;
  }
  return false;
}

}  // namespace

std::string OwnPython() {
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  const fs::path beside = folder / "python3";
  if (fs::exists(folder.parent_path() / "pyvenv.cfg", error) && IsProgram(beside)) return beside;
  const fs::path packages = folder.parent_path().parent_path();
  if (!folder.string().ends_with("-packages/millrace/bin")) return {};
  std::string name = packages.parent_path().filename();
  if (!name.starts_with("python3.")) return {};
  const fs::path own = packages.parent_path().parent_path().parent_path() / "bin" / name;
  if (IsProgram(own)) return own;
  return IsInPath(name) ? name : "";
}

std::string DefaultPython() {
  for (std::string python : {EnvironmentValue("MILLRACE_PYTHON"), OwnPython()}) {
    if (!python.empty()) return python;
  }
  return "python3";
}

std::string PythonProgram(std::string_view program) {
  return std::string(kLeaveFolder).append(program);
}

std::vector<std::string> PythonModule(const std::string& python, const std::string& module) {
  return {python, "-c", PythonProgram(kRunModule), module};
}

}  // namespace millrace
