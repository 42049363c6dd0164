#include "cli/bench_page.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "base/atomic_file.h"
#include "base/child_process.h"
#include "base/file_text.h"
#include "base/python_child.h"
#include "diagnose/last_line.h"
#include "diagnose/temporary_folder.h"

namespace millrace {

// These are the files of python/millrace/bench, by CMakeLists.txt. Both end with a null.
extern const char* const kPageNames[];
extern const char* const kPageTexts[];

namespace cli {

namespace {

constexpr std::string_view kAskVersion = "sys.exit(sys.version_info < (3, 9))";
constexpr std::string_view kDraw = R"(import runpy
sys.path.insert(0, sys.argv.pop(1))
runpy.run_module("bench", run_name="__main__")
)";

/// Returns the Python of MILLRACE_PYTHON, that of the environment of this program, the one of PATH, and the one beside
/// this program.
std::vector<std::string> KnownPythons() {
  std::error_code error;
  const std::string here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
  std::vector<std::string> known = {DefaultPython()};
  if (std::string own = OwnPython(); !own.empty()) known.push_back(std::move(own));
  known.insert(known.end(), {"python3", here + "/python3"});
  return known;
}

}  // namespace

absl::StatusOr<std::string> FindPagePython(const std::stop_token& stop) {
  for (const std::string& python : KnownPythons()) {
    const absl::StatusOr<ChildEnd> end = RunChild({.words = {python, "-c", PythonProgram(kAskVersion)}}, stop);
    if (absl::IsCancelled(end.status())) return end.status();
    if (end.ok() && end->exit_status == 0) return python;
  }
  return absl::FailedPreconditionError(fmt::format(
      "--html: Python draws the page, and '{}' is no Python of 3.9 or later; install one, name one by MILLRACE_PYTHON, "
      "or leave out --html: the text and --json need none",
      DefaultPython()));
}

absl::Status WriteBenchPage(const std::string& python, const std::string& figures, const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<TemporaryFolder> scratch, TemporaryFolder::Make());
  const auto in_scratch = [&](std::string_view name) { return fmt::format("{}/{}", scratch->path(), name); };
  std::error_code error;  // without the folder, its files cannot be written either
  std::filesystem::create_directory(in_scratch("bench"), error);
  for (size_t i = 0; kPageNames[i] != nullptr; ++i)
    RETURN_IF_ERROR(WriteFileAtomically(in_scratch(fmt::format("bench/{}", kPageNames[i])), kPageTexts[i]));
  RETURN_IF_ERROR(WriteFileAtomically(in_scratch("figures.json"), figures));
  const ChildCommand command{.words = {python, "-c", PythonProgram(kDraw), scratch->path(), in_scratch("figures.json"),
                                       in_scratch("page.html")},
                             .keep_errors = true};
  const absl::StatusOr<ChildEnd> end = RunChild(command, {});
  if (!end.ok()) return Annotate(end.status(), fmt::format("{}: drawing it by '{}'", path, python));
  if (end->exit_status != 0) {
    return absl::InternalError(fmt::format("{} was not drawn by '{}': {}", path, python, LastLineOf(end->errors)));
  }
  ASSIGN_OR_RETURN(const std::string page, ReadFileText(in_scratch("page.html")));
  return WriteFileAtomically(path, page);
}

}  // namespace cli

}  // namespace millrace
