#include "compile_cache/compile_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "net/runtime.h"
#include "store/blocking.h"
#include "store/file_store.h"
#include "store/memory_store.h"
#include "store/testing/devstore_bucket.h"
#include "store/testing/forwarding_store.h"
#include "store/testing/temp_folder.h"

namespace millrace {
namespace {

using Files = std::map<std::string, std::string>;  // contents by path

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

/// Fails one call, which is counted over all kinds.
class FailingStore final : public ForwardingStore {
 public:
  FailingStore() : ForwardingStore(std::make_unique<MemoryStore>("failing")) {}
  ~FailingStore() override { Close(); }

  void FailAt(int call) {
    calls_ = 0;
    fails_at_ = call;
  }
  int calls() const { return calls_; }

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    if (Fails()) return std::move(done)(Down());
    ForwardingStore::Get(std::move(key), into, std::move(options), std::move(done));
  }
  void Head(std::string key, HeadOptions options, HeadCallback done) override {
    if (Fails()) return std::move(done)(Down());
    ForwardingStore::Head(std::move(key), options, std::move(done));
  }
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
    if (Fails()) return std::move(done)(Down());
    ForwardingStore::Put(std::move(key), body, std::move(options), std::move(done));
  }
  void Delete(std::vector<std::string> keys, DeleteCallback done) override {
    if (Fails()) return std::move(done)(std::vector<absl::Status>(keys.size(), Down()));
    ForwardingStore::Delete(std::move(keys), std::move(done));
  }
  void List(ListOptions options, ListCallback done) override {
    if (Fails()) return std::move(done)(Down());
    ForwardingStore::List(std::move(options), std::move(done));
  }

 private:
  static absl::Status Down() { return absl::UnavailableError("the store is down"); }
  bool Fails() { return ++calls_ == fails_at_; }

  std::atomic<int> calls_{0};
  std::atomic<int> fails_at_{0};
};

/// Calls `on_put` with the key before each Put.
class WatchedStore final : public ForwardingStore {
 public:
  explicit WatchedStore(std::function<void(const std::string&)> on_put)
      : ForwardingStore(std::make_unique<MemoryStore>("watched")), on_put_(std::move(on_put)) {}
  ~WatchedStore() override { Close(); }

  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
    on_put_(key);
    ForwardingStore::Put(std::move(key), body, std::move(options), std::move(done));
  }

 private:
  const std::function<void(const std::string&)> on_put_;
};

/// Provides a machine with folders of its own.
class Machine {
 public:
  explicit Machine(ObjectStore& store, std::chrono::milliseconds term = std::chrono::minutes(1))
      : runtime_({.io_threads = 1, .cpu_threads = 1, .memory_bytes = 256 << 20}),
        stores_(runtime_),
        folders_(ChooseCacheFolders(folder_.path(), [](const std::string&) { return std::string(); }).folders),
        cache({.store = &store, .prefix = "caches/"}, stores_, runtime_.memory(),
              {.key = "key",
               .about = "test",
               .folders = folders_,
               .term = term,
               .journal = [this](const std::string& text) { journal += text + "\n"; }}) {}

  void Compile(const Files& files) {
    for (const auto& [path, text] : files) {
      const std::string place = folder_ / path;
      std::filesystem::create_directories(std::filesystem::path(place).parent_path());
      std::ofstream(place, std::ios::binary) << text;
    }
  }
  Files Has() const {
    Files files;
    for (const FoundFile& found : FindCacheFiles(folders_).files) {
      std::ifstream file(found.file, std::ios::binary);
      files[found.path] = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    }
    return files;
  }
  std::string PlaceOf(const std::string& path) const { return folder_ / path; }
  absl::Status Publish() { return cache.Publish(cache.FindNew(), kAll, /*sweeps=*/true, {}); }

 private:
  const TempFolder folder_;
  Runtime runtime_;
  Stores stores_;
  const std::vector<CacheFolder> folders_;

 public:
  std::string journal;
  CompileCache cache;
};

// Returns files of more than one piece, of no piece, and one that is there twice.
Files SomeFiles() {
  return {{"inductor/fxgraph/k/a", "graph"}, {"inductor/ab/kernel.so", SeededBytes(9 << 20, 1)},
          {"jax/empty-cache", ""},           {"jax/graph-cache", "graph"},
          {"triton/K/k.json", "{}"},         {"triton/K/k.cubin", SeededBytes(5000, 2)}};
}

const std::string kNeuronModule = "neuron/neuronxcc-2/MODULE_1+a/";

std::vector<std::string> ObjectsOf(ObjectStore& store) {
  const absl::StatusOr<std::vector<ObjectInfo>> all = ListAll(store, "caches/key/objects/");
  EXPECT_TRUE(all.ok()) << all.status();
  std::vector<std::string> keys;
  for (const ObjectInfo& object : *all) keys.push_back(object.key);
  return keys;
}

// Files that one machine compiles are found by another one, whatever the store is.
void Share(ObjectStore& store) {
  Machine first(store);
  ASSERT_TRUE(first.cache.Start({}).ok());
  EXPECT_TRUE(first.cache.holds_lease());
  first.Compile(SomeFiles());
  ASSERT_TRUE(first.cache.Renew({}).ok());
  ASSERT_TRUE(first.Publish().ok()) << first.journal;
  EXPECT_FALSE(first.cache.holds_lease());
  EXPECT_EQ(ObjectsOf(store).size(), 5u);  // objects are named by their content
  Machine second(store);
  ASSERT_TRUE(second.cache.Start({}).ok());
  EXPECT_FALSE(second.cache.holds_lease());
  EXPECT_EQ(second.Has(), SomeFiles());
  EXPECT_TRUE(second.cache.FindNew().files.empty());
  second.Compile({{"jax/more-cache", "more"}});
  ASSERT_TRUE(second.Publish().ok());
  ASSERT_TRUE(first.cache.Start({}).ok());  // fetches only what it lacks
  EXPECT_NE(first.journal.find("7 of 7 cached files can be used; 1 of 1 missing file fetched"), std::string::npos)
      << first.journal;
  Files all = SomeFiles();
  all["jax/more-cache"] = "more";
  EXPECT_EQ(first.Has(), all);
}

// A kernel of Triton that was compiled elsewhere is found, and JAX can store more within its bound.
TEST(CompileCache, PlacedFilesWorkOnAnotherMachine) {
  MemoryStore store("caches");
  Machine first(store);
  ASSERT_TRUE(first.cache.Start({}).ok());
  first.Compile({{"triton/K/k.cubin", "cubin"},
                 {"triton/K/__grp__k.json", R"({"child_paths": {"k.cubin": "/elsewhere/triton/K/k.cubin"}})"},
                 {"jax/a-cache", "a"}});
  ASSERT_TRUE(first.Publish().ok());
  Machine second(store);
  for (int start = 0; start < 2; ++start) {
    ASSERT_TRUE(second.cache.Start({}).ok());
    const std::string kernel = second.PlaceOf("triton/K/k.cubin");
    EXPECT_TRUE(std::filesystem::exists(kernel));
    EXPECT_EQ(second.Has().at("triton/K/__grp__k.json"), R"({"child_paths":{"k.cubin":")" + kernel + "\"}}");
    EXPECT_TRUE(std::filesystem::exists(second.PlaceOf("jax/a-atime")));
    EXPECT_TRUE(second.cache.FindNew().files.empty());
    ASSERT_TRUE(second.Publish().ok());
  }
}

TEST(CompileCache, SharesThroughMemory) {
  MemoryStore store("caches");
  Share(store);
}

TEST(CompileCache, SharesThroughAFolder) {
  const TempFolder folder;
  FileStore store(folder.path());
  Share(store);
}

TEST(CompileCache, SharesThroughS3) {
  const DevstoreBucket bucket({.root = "mem:"});
  Share(bucket.NewClient()->store);
}

// The bytes in the store are not those that were stored: the file is not placed, nor what belongs to it; the next host
// that compiles it stores it again.
TEST(CompileCache, DamagedObjectsAreRefusedAndReplaced) {
  for (const std::string damage : {"changed", "short", "missing"}) {
    MemoryStore store("caches");
    Files files = SomeFiles();
    files[kNeuronModule + "model.neff"] = "neff";
    files[kNeuronModule + "model.done"] = "done";
    Machine first(store);
    ASSERT_TRUE(first.cache.Start({}).ok());
    first.Compile(files);
    ASSERT_TRUE(first.Publish().ok());
    for (const std::string& key : ObjectsOf(store)) {
      std::string text = *ReadAll(store, key, 1 << 30);
      if (text != "neff" && text.size() != 9 << 20) continue;
      if (damage == "missing") {
        ASSERT_TRUE(DeleteBlocking(store, key).ok());
        continue;
      }
      text.back() = '!';
      if (damage == "short") text.pop_back();
      ASSERT_TRUE(PutBlocking(store, key, AsBytes(text)).ok());
    }
    Machine second(store);
    ASSERT_TRUE(second.cache.Start({}).ok());
    Files sound = SomeFiles();
    sound.erase("inductor/ab/kernel.so");
    EXPECT_EQ(second.Has(), sound) << damage;
    EXPECT_NE(second.journal.find("2 cached files cannot be used"), std::string::npos) << second.journal;
    EXPECT_NE(second.journal.find("5 of 8 cached files can be used"), std::string::npos) << second.journal;
    EXPECT_EQ(ObjectsOf(store).size(), 4u);  // those of the module and the kernel are gone
    second.Compile(files);
    ASSERT_TRUE(second.Publish().ok());
    Machine third(store);
    ASSERT_TRUE(third.cache.Start({}).ok());
    EXPECT_EQ(third.Has(), files) << damage;
  }
}

// A file on the machine that is not what the record says is replaced, so that nothing unverified is used.
TEST(CompileCache, WhatLiesOnTheMachineIsVerifiedToo) {
  MemoryStore store("caches");
  Machine first(store);
  ASSERT_TRUE(first.cache.Start({}).ok());
  first.Compile(SomeFiles());
  ASSERT_TRUE(first.Publish().ok());
  Machine second(store);
  Files old = SomeFiles();
  old["triton/K/k.cubin"].back() ^= 1;
  second.Compile(old);
  ASSERT_TRUE(second.cache.Start({}).ok());
  EXPECT_EQ(second.Has(), SomeFiles());
}

// Whichever request fails, the folders hold only what is whole, and the next host gets on.
TEST(CompileCache, EachRequestMayFail) {
  const Files files{{"jax/a-cache", "a"}, {"triton/K/k.json", "{}"}, {"triton/K/k.cubin", "cubin"}};
  int publish_calls = 0;
  int start_calls = 0;
  for (int call = 1; call <= std::max({1, publish_calls, start_calls}); ++call) {
    FailingStore store;
    Machine first(store);
    ASSERT_TRUE(first.cache.Start({}).ok());
    first.Compile(files);
    store.FailAt(call);
    const absl::Status published = first.Publish();
    if (call == 1) publish_calls = store.calls() + 10;
    store.FailAt(0);
    if (!published.ok()) ASSERT_TRUE(first.Publish().ok()) << call;
    Machine second(store);
    store.FailAt(call);
    const absl::Status started = second.cache.Start({});
    start_calls = std::max(start_calls, store.calls() + 1);
    store.FailAt(0);
    for (const auto& [path, text] : second.Has()) EXPECT_EQ(files.at(path), text);
    const Files has = second.Has();
    EXPECT_EQ(has.contains("triton/K/k.json"), has.contains("triton/K/k.cubin")) << call;
    second.Compile(files);
    ASSERT_TRUE(second.Publish().ok()) << call;
    Machine third(store);
    ASSERT_TRUE(third.cache.Start({}).ok());
    EXPECT_EQ(third.Has(), files) << call;
  }
  EXPECT_GT(publish_calls, 10);
  EXPECT_GT(start_calls, 4);
}

// Files that change, or changed too late, and files that were there at the start are not stored.
TEST(CompileCache, OnlyWhatIsSettledAndNewIsStored) {
  MemoryStore store("caches");
  Machine first(store);
  ASSERT_TRUE(first.cache.Start({}).ok());
  ASSERT_TRUE(first.Publish().ok());
  Machine second(store);
  second.Compile({{"jax/earlier-cache", "1"}});
  ASSERT_TRUE(second.cache.Start({}).ok());
  second.Compile({{"jax/new-cache", "2"}, {"triton/K/a", "3"}, {"triton/K/b", "4"}});
  FoundFiles found = second.cache.FindNew();
  ASSERT_EQ(found.files.size(), 3u);
  const int64_t cut = found.files[0].modified_ns;
  found.files[1].modified_ns = cut;
  found.files[2].modified_ns = cut + 1;  // half of a group is late
  ASSERT_TRUE(second.cache.Publish(found, cut, false, {}).ok());
  Machine third(store);
  ASSERT_TRUE(third.cache.Start({}).ok());
  EXPECT_EQ(third.Has(), (Files{{"jax/new-cache", "2"}}));
}

TEST(CompileCache, OneOfManyCompilesAndTheOthersGetIt) {
  const DevstoreBucket bucket({.root = "mem:"});
  std::atomic<int> compiled{0};
  std::atomic<int> served{0};
  std::vector<std::thread> hosts;
  for (int i = 0; i < 6; ++i) {
    hosts.emplace_back([&] {
      const auto client = bucket.NewClient();
      Machine machine(client->store, std::chrono::seconds(9));  // looks every 0.3 s
      EXPECT_TRUE(machine.cache.Start({}).ok());
      if (machine.cache.holds_lease()) {
        ++compiled;
        machine.Compile({{"jax/a-cache", "a"}});
      }
      EXPECT_TRUE(machine.Publish().ok()) << machine.journal;
      served += machine.Has() == Files{{"jax/a-cache", "a"}} ? 1 : 0;
    });
  }
  for (std::thread& host : hosts) host.join();
  EXPECT_EQ(compiled, 1);
  EXPECT_EQ(served, 6);
}

TEST(CompileCache, AWaitIsInterrupted) {
  MemoryStore store("caches");
  Machine first(store);
  ASSERT_TRUE(first.cache.Start({}).ok());
  Machine second(store);
  std::stop_source stop;
  std::thread starts([&] { EXPECT_TRUE(absl::IsCancelled(second.cache.Start(stop.get_token()))); });
  stop.request_stop();
  starts.join();
}

TEST(CompileCache, AStopAfterTheLeaseWasWrittenLeavesItToBeGivenBack) {
  std::stop_source stop;
  WatchedStore store([&](const std::string&) { stop.request_stop(); });
  Machine first(store);
  EXPECT_TRUE(absl::IsCancelled(first.cache.Start(stop.get_token())));
  ASSERT_TRUE(first.cache.holds_lease());
  ASSERT_TRUE(first.cache.GiveBack({}).ok());
  Machine second(store);
  ASSERT_TRUE(second.cache.Start({}).ok());
  EXPECT_TRUE(second.cache.holds_lease());
}

TEST(CompileCache, TheLeaseIsRenewedDuringALongUpload) {
  std::mutex mutex;
  std::condition_variable renewed;
  int records = 0;
  bool in_time = false;
  WatchedStore store([&](const std::string& key) {
    std::unique_lock lock(mutex);
    if (key.ends_with("RECORD")) {
      ++records;
      renewed.notify_all();
    } else {
      // The first is that of Start. The limit is for a build that does not renew.
      in_time = renewed.wait_for(lock, std::chrono::seconds(300), [&] { return records >= 3; });
    }
  });
  Machine machine(store, std::chrono::milliseconds(30));
  ASSERT_TRUE(machine.cache.Start({}).ok());
  machine.Compile({{"jax/a-cache", "a"}});
  ASSERT_TRUE(machine.Publish().ok()) << machine.journal;
  EXPECT_TRUE(in_time);
  EXPECT_FALSE(machine.cache.holds_lease());
}

TEST(CompileCache, ALostLeaseIsNotRenewed) {
  MemoryStore store("caches");
  Machine first(store, std::chrono::milliseconds(1));
  ASSERT_TRUE(first.cache.Start({}).ok());
  Machine second(store, std::chrono::milliseconds(1));
  ASSERT_TRUE(second.cache.Start({}).ok());
  EXPECT_TRUE(second.cache.holds_lease());
  EXPECT_TRUE(absl::IsFailedPrecondition(first.cache.Renew({})));
  EXPECT_FALSE(first.cache.holds_lease());
  first.Compile({{"jax/a-cache", "a"}});
  ASSERT_TRUE(first.Publish().ok());  // what it has compiled is good all the same
  EXPECT_TRUE(absl::IsFailedPrecondition(second.cache.Renew({})) || second.cache.holds_lease());
}

}  // namespace
}  // namespace millrace
