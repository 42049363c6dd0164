#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace millrace {

/// Tracks where a program is in the order in which it is going to open files, and what comes next. The order is a text
/// with one key a line. Pure. Lines may end with CR LF; empty ones are passed over. A key may come several times: each
/// time is a place of its own.
///
/// The program need not open every file, nor quite in this order: several processes share the files, each ahead of or
/// behind the others by up to some thousand. If it opens files that are not near, they are looked for in the whole
/// text: it has begun again, or continues from elsewhere.
class OrderFile {
 public:
  /// `prefix` is put before each key. The text must outlive it.
  OrderFile(std::string_view text, std::string prefix, size_t files);

  /// A file was opened. False if it is none that comes soon.
  bool OnOpen(const std::string& key);
  /// Returns the keys that are to be read now, each place once: up to `files` behind the one that was opened last.
  std::vector<std::string> TakeWanted();
  /// Returns true if TakeWanted has several keys, or the last ones.
  bool HasWanted() const;
  void set_files(size_t files) { files_ = files; }
  size_t searches() const { return searches_; }

 private:
  std::optional<std::string> LineAt(size_t* at) const;
  bool follows() const;
  bool BeginsAgain(uint64_t place);
  void Trust(bool near);
  void Fill();
  void StartAt(size_t offset);
  std::optional<size_t> Search(const std::string& key) const;

  const std::string_view text_;
  const std::string prefix_;
  size_t files_;
  // These are the lines around the front: near_ holds those from first_ on; next_ is the offset behind them.
  std::vector<std::string> near_;
  std::unordered_map<std::string, std::vector<uint64_t>> places_;
  uint64_t first_ = 0;
  uint64_t front_ = 0;  // the number of the line behind the one that was opened last
  uint64_t sent_ = 0;   // up to this line, all were given out
  size_t next_ = 0;
  size_t misses_ = 0;
  int trust_;            // that the program keeps to the order: what is opened near to the front speaks for it
  size_t lagging_ = 0;   // files in a row that were far behind the front
  size_t patience_ = 2;  // misses before the text is searched; more each time that it was in vain
  size_t searches_ = 0;
};

}  // namespace millrace
