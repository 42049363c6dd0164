#include "net/tls.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace millrace {
namespace {

namespace fs = std::filesystem;

class AuthoritiesElsewhereTest : public ::testing::Test {
 protected:
  AuthoritiesElsewhereTest() {
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
    fs::create_directories(own_folder_);
    std::ofstream(first_) << "PEM";
    std::ofstream(second_) << "PEM";
  }
  ~AuthoritiesElsewhereTest() override {
    unsetenv("SSL_CERT_FILE");
    unsetenv("SSL_CERT_DIR");
    fs::remove_all(folder_);
  }

  std::string Found() const {
    const char* const files[] = {first_.c_str(), second_.c_str()};
    return AuthoritiesElsewhere(own_file_, own_folder_, files);
  }

  const std::string folder_ = ::testing::TempDir() + "/authorities-" + std::to_string(::getpid());
  const std::string own_file_ = folder_ + "/own.pem";
  const std::string own_folder_ = folder_ + "/own";
  const std::string first_ = folder_ + "/first.pem";
  const std::string second_ = folder_ + "/second.pem";
};

TEST_F(AuthoritiesElsewhereTest, TheFirstFileThatExists) {
  EXPECT_EQ(Found(), first_);
  fs::remove(first_);
  EXPECT_EQ(Found(), second_);
  fs::remove(second_);
  EXPECT_EQ(Found(), "");
}

TEST_F(AuthoritiesElsewhereTest, TheFolderNeedNotExist) {
  fs::remove(own_folder_);
  EXPECT_EQ(Found(), first_);
}

TEST_F(AuthoritiesElsewhereTest, OpenSslsOwnPlacesComeFirst) {
  std::ofstream(own_file_) << "PEM";
  EXPECT_EQ(Found(), "");
  fs::remove(own_file_);
  std::ofstream(own_folder_ + "/8d89cda1.0") << "PEM";
  EXPECT_EQ(Found(), "");
}

TEST_F(AuthoritiesElsewhereTest, TheUsersChoiceComesFirst) {
  for (const char* const name : {"SSL_CERT_FILE", "SSL_CERT_DIR"}) {
    setenv(name, "/nowhere", 1);
    EXPECT_EQ(Found(), "") << name;
    unsetenv(name);
  }
  EXPECT_EQ(Found(), first_);
}

}  // namespace
}  // namespace millrace
