use super::*;
use crate::MemDisk;
use holdfast_consensus::rng::SplitMix64;

/// Every file and directory of a disk, files with their content.
fn tree<D: Disk>(disk: &D) -> BTreeMap<String, Option<Vec<u8>>> {
    let (mut found, mut dirs) = (BTreeMap::new(), vec![String::new()]);
    while let Some(dir) = dirs.pop() {
        for name in disk.list(&dir).unwrap() {
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            if disk.is_dir(&path).unwrap() {
                dirs.push(path.clone());
                found.insert(path, None);
            } else {
                let file = disk.open(&path, Mode::Read).unwrap();
                let mut bytes = vec![0; to_usize(file.len().unwrap())];
                file.read_at(0, &mut bytes).unwrap();
                found.insert(path, Some(bytes));
            }
        }
    }
    found
}

/// A disk with some files in two directories.
fn below() -> MemDisk {
    let mut files = BTreeMap::new();
    for (n, path) in ["a", "b", "d/a", "d/b", "e/a", "d/f/a"].iter().enumerate() {
        let fill = u8::try_from(n).unwrap() + 1;
        files.insert((*path).to_owned(), vec![fill; 3000 * n]);
    }
    MemDisk::from_files(files)
}

/// One operation, drawn; whether it was done.
fn act<D: Disk>(disk: &D, rng: &mut SplitMix64) -> bool {
    let names = ["a", "b", "c", "d/a", "d/b", "d/c", "e/a", "d", "e", "g", "g/a", "d/f", "d/f/a"];
    let mut below = |most: u64| rng.next_u64() % most;
    let (op, path) = (below(10), names[to_usize(below(13))]);
    let (other, at, len) = (names[to_usize(below(13))], below(14_000), below(9000));
    let fill = u8::try_from(below(3)).unwrap();
    match op {
        0 => disk.open(path, Mode::CreateNew).is_ok(),
        // A rename onto itself is not what anybody does, and disks differ over it.
        1 if path != other && !other.starts_with(&format!("{path}/")) => {
            disk.rename(path, other).is_ok()
        }
        2 => disk.unlink(path).is_ok(),
        3 => disk.make_dir(path).is_ok(),
        4 => disk.remove_dir(path).is_ok(),
        5 => match disk.open(path, Mode::Write) {
            Ok(file) => file.set_len(at).is_ok(),
            Err(_) => false,
        },
        6 => match disk.open(path, Mode::Read) {
            Ok(file) => file.write_at(at, b"no").is_ok() || file.set_len(1).is_ok(),
            Err(_) => false,
        },
        _ => match disk.open(path, Mode::Write) {
            Ok(file) => file.write_at(at, &vec![fill; to_usize(len)]).is_ok(),
            Err(_) => false,
        },
    }
}

/// What the changes make of the tree as it was must be the tree as it is.
fn accounted(before: &BTreeMap<String, Option<Vec<u8>>>, overlay: &Overlay<MemDisk>) {
    let now = tree(overlay);
    let changes = overlay.changes().unwrap();
    let touched =
        |path: &String| changes.iter().any(|c| c.path == *path || c.to.as_ref() == Some(path));
    for path in before.keys().chain(now.keys()) {
        if before.get(path) != now.get(path) {
            assert!(touched(path), "{path} became different in silence: {changes:?}");
        }
    }
    for Changed { path, to, change } in &changes {
        let here = to.as_ref().unwrap_or(path);
        match change {
            None => assert_eq!(before[path], now[here], "{path} was only renamed"),
            Some(Change::Made(len)) => {
                assert!(!before.contains_key(path));
                assert_eq!(now[path].as_ref().map(|bytes| bytes.len() as u64), *len);
            }
            Some(Change::Removed) => assert!(before.contains_key(path)),
            Some(Change::Replaced(len)) => {
                assert_eq!(now[path].as_ref().unwrap().len() as u64, *len)
            }
            Some(Change::Rewritten { from, before: was, now: is }) => {
                let (old, new) = (before[path].as_ref().unwrap(), now[here].as_ref().unwrap());
                assert_eq!((old.len() as u64, new.len() as u64), (*was, *is));
                let from = to_usize(*from);
                assert_eq!(old[..from], new[..from], "{path}: nothing differs before it");
            }
        }
    }
}

#[test]
fn it_does_what_the_disk_below_would_do_and_that_one_stays_as_it_is() {
    let mut done = 0;
    for seed in 0..300 {
        let (disk, real) = (below(), below());
        let (before, trace) = (tree(&disk), disk.trace_hash());
        let overlay = Overlay::over(disk.clone()).unwrap();
        let (mut one, mut two) = (SplitMix64::new(seed), SplitMix64::new(seed));
        for step in 0..40 {
            let (mine, theirs) = (act(&overlay, &mut one), act(&real, &mut two));
            assert_eq!(mine, theirs, "seed {seed}, step {step}");
            done += u64::from(mine);
            assert!(tree(&overlay) == tree(&real), "seed {seed}, step {step}");
        }
        accounted(&before, &overlay);
        assert!(tree(&disk) == before && disk.trace_hash() == trace, "seed {seed}");
    }
    assert!(done > 3000, "{done} operations were done");
}

#[test]
fn what_was_not_changed_is_not_called_changed() {
    let overlay = Overlay::over(below()).unwrap();
    assert_eq!(overlay.changes().unwrap(), []);
    let file = overlay.open("b", Mode::Write).unwrap();
    file.write_at(10, &[2; 100]).unwrap();
    assert_eq!(overlay.changes().unwrap(), [], "the same bytes");
    file.write_at(70, &[9]).unwrap();
    let change = Some(Change::Rewritten { from: 70, before: 3000, now: 3000 });
    assert_eq!(overlay.changes().unwrap(), [Changed { path: "b".into(), to: None, change }]);
    overlay.rename("b", "d/z").unwrap();
    assert_eq!(
        overlay.changes().unwrap(),
        [Changed { path: "b".into(), to: Some("d/z".into()), change }]
    );
}

#[test]
fn a_file_that_replaces_another_is_told_as_one_change() {
    let overlay = Overlay::over(below()).unwrap();
    crate::whole::replace(&overlay, "a", b"new").unwrap();
    let change = Some(Change::Replaced(3));
    assert_eq!(overlay.changes().unwrap(), [Changed { path: "a".into(), to: None, change }]);
}

#[test]
fn a_lock_below_is_neither_taken_nor_in_the_way() {
    let disk = below();
    let _held = disk.lock("lock").unwrap();
    let overlay = Overlay::over(disk.clone()).unwrap();
    overlay.lock("lock").unwrap();
    assert_eq!(disk.lock("lock").err().map(|e| e.kind()), Some(io::ErrorKind::WouldBlock));
}
