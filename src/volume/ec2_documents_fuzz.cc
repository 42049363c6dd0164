// Any bytes as each answer of EC2: no crash, and whatever is an error has a message.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "volume/ec2_documents.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto page = ParseVolumes(text); page.ok()) {
    for (const Ec2Volume& volume : page->entries) {
      for (const Ec2Attachment& at : volume.attachments) {
        if (at.state == "detached") std::abort();
      }
    }
  }
  (void)ParseSnapshots(text);
  (void)ParseInstances(text);
  const absl::Status error = Ec2Error("CreateVolume", 400, text);
  if (error.ok() || error.message().empty()) std::abort();
  return 0;
}
