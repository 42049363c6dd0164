#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"

/// Compilers keep what they have made in folders. This header finds the folders, and which files in them are worth
/// sharing.

namespace millrace {

/// Describes the folder of one compiler.
struct CacheFolder {
  std::string name;  // "inductor", "triton", "jax", "neuron"; "jax-HASH" of what only hosts with the same path can use
  std::string path;  // absolute
};

struct CacheFolders {
  std::vector<CacheFolder> folders;
  std::map<std::string, std::string> variables;  // that pass these folders to compilers
  std::vector<std::string> left_alone;           // clauses: caches that are not brought to all hosts, and why
};

/// Looks a variable up; returns "" if it is not set.
using LookUpVariable = std::function<std::string(const std::string& name)>;

/// Chooses a folder below `root` for each compiler: TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR,
/// JAX_COMPILATION_CACHE_DIR, NEURON_COMPILE_CACHE_URL. Settings of the user stay (for Neuron, `--cache_dir` in
/// NEURON_CC_FLAGS comes before the variable). A cache that the user keeps elsewhere than in a folder is left alone.
/// JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES=none keeps paths of this machine out of JAX's keys. If the user has set it
/// otherwise, each path has a JAX cache of its own.
CacheFolders ChooseCacheFolders(const std::string& root, const LookUpVariable& variable);

/// Describes a file in a folder of a compiler.
struct FoundFile {
  std::string path;  // as CachedFile has it
  std::string file;  // its place on the disk
  uint64_t bytes = 0;
  int64_t modified_ns = 0;  // since 1970

  friend bool operator==(const FoundFile&, const FoundFile&) = default;
};

struct FoundFiles {
  std::vector<FoundFile> files;  // in ascending order of their paths
  bool compiling = false;        // a compiler is known to be at work: a Neuron module is not done
};

/// Returns the files of all folders that may be shared. These are left out: locks and temporary files, the times of use
/// that JAX keeps, symbolic links, and names that JSON cannot hold. Modules of Neuron that are not done or failed are
/// left out, too, so that failures stay on the machine where they happened. Folders that do not exist are empty. An
/// error of the file system leaves out the file that it concerns, since compilers remove files at any time.
FoundFiles FindCacheFiles(const std::vector<CacheFolder>& folders);

/// Returns the place of a CachedFile; "" if none of the folders has its cache.
std::string PlaceOfCachedFile(const std::vector<CacheFolder>& folders, const std::string& path);

}  // namespace millrace
