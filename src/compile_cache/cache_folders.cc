#include "compile_cache/cache_folders.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "base/atomic_file.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/crypto.h"
#include "base/hex.h"
#include "compile_cache/cache_record.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kNeuron = "neuron";
constexpr std::string_view kModulePrefix = "MODULE_";
constexpr std::string_view kJax = "jax";
constexpr const char* kJaxFoldersOfXla = "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES";

struct CompilerCache {
  const char* name;
  const char* variable;
};
constexpr CompilerCache kCompilerCaches[] = {{"inductor", "TORCHINDUCTOR_CACHE_DIR"},
                                             {"triton", "TRITON_CACHE_DIR"},
                                             {"jax", "JAX_COMPILATION_CACHE_DIR"},
                                             {"neuron", "NEURON_COMPILE_CACHE_URL"}};

// Finds "--cache_dir=/x" or "--cache_dir /x" in flags of the Neuron compiler; "" if there is no such flag. The last one
// counts.
std::string CacheDirOf(std::string_view flags) {
  constexpr std::string_view kFlag = "--cache_dir";
  std::string found;
  bool is_next = false;
  for (size_t begin = 0; begin < flags.size();) {
    begin = flags.find_first_not_of(" \t", begin);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(flags.find_first_of(" \t", begin), flags.size());
    std::string_view word = flags.substr(begin, end - begin);
    if (is_next) {
      found = std::string(word);
      is_next = false;
    } else if (word == kFlag) {
      is_next = true;
    } else if (word.starts_with(kFlag) && word.substr(kFlag.size()).starts_with('=')) {
      word.remove_prefix(kFlag.size() + 1);
      found = std::string(word);
    }
    begin = end;
  }
  std::erase_if(found, [](char c) { return c == '"' || c == '\''; });
  return found;
}

// Recognizes names of what is no result: locks, files that are being written, and the times of use of JAX.
bool IsPassing(std::string_view name) {
  return name == "locks" || name == "lock" || name.starts_with("tmp.") || name.ends_with(".tmp") ||
         name.ends_with(".lock") || name.ends_with(".lockfile") || name.ends_with(".pid") || name.ends_with("-atime") ||
         IsTemporaryName(name);
}

// Returns the name of JAX's cache. JAX puts folders of XLA below its own, and their paths into the keys of its entries:
// a host with another path finds none of them. So no such folders are the default; if the user wants some, the name has
// the path, and the entries are those of hosts with the same one.
std::string NameJaxCache(const std::string& path, const LookUpVariable& variable, CacheFolders* chosen) {
  const std::string set = variable(kJaxFoldersOfXla);
  if (set.empty()) chosen->variables.emplace(kJaxFoldersOfXla, "none");
  if (set.empty() || set == "none") return std::string(kJax);
  chosen->left_alone.push_back(fmt::format(
      "{} is set to {}, so JAX finds only what hosts with the same folder have compiled", kJaxFoldersOfXla, set));
  constexpr size_t kDigits = 16;
  return fmt::format("{}-{}", kJax, HexEncode(Sha256(AsBytes(path))).substr(0, kDigits));
}

bool IsFile(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(fs::symlink_status(path, error));
}

// Returns true for a module of Neuron that is done, and has a result. A failed module is done, or not even that,
// without a model.neff.
bool IsGoodModule(const fs::path& module) {
  return IsFile(module / "model.done") && IsFile(module / "model.neff");
}

void TakeCacheFile(const CacheFolder& folder, const fs::path& file, std::vector<FoundFile>* found) {
  struct stat facts {};
  if (lstat(file.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) return;
  std::string path = folder.name + "/" + file.lexically_relative(folder.path).string();
  if (!IsCachePath(path)) return;
  found->push_back({.path = std::move(path),
                    .file = file.string(),
                    .bytes = static_cast<uint64_t>(facts.st_size),
                    .modified_ns = NanosecondsOf(facts.st_mtim)});
}

void WalkCacheFolder(const CacheFolder& folder, FoundFiles* found) {
  std::error_code error;
  fs::recursive_directory_iterator at(folder.path, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    std::error_code ignored;
    const bool is_folder = fs::is_directory(at->symlink_status(ignored));
    if (IsPassing(name)) {
      if (is_folder) at.disable_recursion_pending();
      continue;
    }
    if (is_folder && folder.name == kNeuron && name.starts_with(kModulePrefix) && !IsGoodModule(at->path())) {
      found->compiling = found->compiling || !IsFile(at->path() / "model.done");
      at.disable_recursion_pending();
      continue;
    }
    if (!is_folder) TakeCacheFile(folder, at->path(), &found->files);
  }
}

}  // namespace

CacheFolders ChooseCacheFolders(const std::string& root, const LookUpVariable& variable) {
  CacheFolders chosen;
  for (const CompilerCache& cache : kCompilerCaches) {
    std::string from = cache.variable;
    std::string set = variable(cache.variable);
    if (cache.name == kNeuron) {
      if (std::string flag = CacheDirOf(variable("NEURON_CC_FLAGS")); !flag.empty()) {
        set = std::move(flag);
        from = "--cache_dir in NEURON_CC_FLAGS";
      }
    }
    if (set.starts_with("file://")) set = set.substr(std::string_view("file://").size());
    if (set.find("://") != std::string::npos) {
      chosen.left_alone.push_back(fmt::format("{} names {}, so the cache of {} is left alone", from, set, cache.name));
      continue;
    }
    fs::path path = set.empty() ? fs::path(root) / cache.name : fs::absolute(set);
    path = path.lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (set.empty()) chosen.variables.emplace(cache.variable, path.string());
    std::string name = cache.name;
    if (name == kJax) name = NameJaxCache(path.string(), variable, &chosen);
    chosen.folders.push_back({.name = std::move(name), .path = path.string()});
  }
  return chosen;
}

FoundFiles FindCacheFiles(const std::vector<CacheFolder>& folders) {
  FoundFiles found;
  for (const CacheFolder& folder : folders) WalkCacheFolder(folder, &found);
  // The user may have put one folder into another: each file is found once.
  std::set<std::string> seen;
  std::erase_if(found.files, [&](const FoundFile& file) { return !seen.insert(file.file).second; });
  std::sort(found.files.begin(), found.files.end(),
            [](const FoundFile& a, const FoundFile& b) { return a.path < b.path; });
  return found;
}

std::string PlaceOfCachedFile(const std::vector<CacheFolder>& folders, const std::string& path) {
  const size_t slash = path.find('/');
  for (const CacheFolder& folder : folders) {
    if (path.substr(0, slash) == folder.name) return folder.path + path.substr(slash);
  }
  return {};
}

}  // namespace millrace
