#include "base/python_child.h"

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

}  // namespace

std::string DefaultPython() {
  std::string named = EnvironmentValue("MILLRACE_PYTHON");
  return named.empty() ? "python3" : named;
}

std::string PythonProgram(std::string_view program) {
  return std::string(kLeaveFolder).append(program);
}

std::vector<std::string> PythonModule(const std::string& python, const std::string& module) {
  return {python, "-c", PythonProgram(kRunModule), module};
}

}  // namespace millrace
