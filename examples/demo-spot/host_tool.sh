#!/bin/sh
# Stand-ins for the programs of an instance's host that `millrace volume` runs, by the name that this is called by. The disks of the
# fake EC2 are folders; here a file system is a file in one, and a mount a link to it. $FAKE_HOST holds the list of mounts.
case ${0##*/} in
  findmnt) # --noheadings --output SOURCE|TARGET --mountpoint|--source WHICH
    if [ "$3" = SOURCE ]; then
      sed -n "s|^\(.*\) $5\$|\1|p" "$FAKE_HOST/mounts" | grep .
    else
      sed -n "s|^$5 ||p" "$FAKE_HOST/mounts" | grep .
    fi
    ;;
  blkid) # -p -o export DEVICE
    if [ -e "$4/.filesystem" ]; then echo TYPE=ext4; else exit 2; fi
    ;;
  mkfs.ext4) # -q DEVICE
    [ ! -e "$2/.filesystem" ] && : >"$2/.filesystem"
    ;;
  mount) # DEVICE PATH
    rmdir "$2" && ln -s "$1" "$2" && echo "$1 $2" >>"$FAKE_HOST/mounts"
    ;;
  umount) # PATH
    rm "$1" && mkdir "$1" && sed -i "\| $1\$|d" "$FAKE_HOST/mounts"
    ;;
esac
