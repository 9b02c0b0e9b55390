use super::*;
use crate::position::Name;
use proptest::prelude::*;

#[test]
fn the_sample_is_sound_and_has_several_segments() {
    let files = sample_files();
    let segments = files.keys().filter(|path| {
        let name = path.strip_prefix("log/").and_then(Name::parse);
        matches!(name, Some(Name::Segment { .. }))
    });
    assert!(segments.count() >= 2, "{:?}", files.keys());
    let log = Log::open(MemDisk::from_files(files), OWNER, OPTIONS).unwrap();
    assert_eq!(log.recovered().last, LogId::new(4, 19));
    fuzz_recover(&[1]);
}

#[test]
fn flipped_bits_of_a_sample_keep_every_promise() {
    let sample = sample_files();
    for file in 0..u16::try_from(sample.len()).unwrap() {
        for place in (0..2048u16).step_by(7) {
            let ([low, high], byte) = (place.to_le_bytes(), low_byte(place % 8));
            fuzz_recover(&[1, low_byte(file), low, high, 4 * byte, 1 << byte]);
        }
    }
}

fn low_byte(number: u16) -> u8 {
    number.to_le_bytes()[0]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..Default::default() })]

    #[test]
    fn recovery_from_arbitrary_bytes_never_panics(data in proptest::collection::vec(any::<u8>(), 0..20_000)) {
        fuzz_recover(&data);
    }

    #[test]
    fn recovery_from_a_battered_log_never_panics(
        mut blows in proptest::collection::vec(any::<u8>(), 5..60),
    ) {
        blows.insert(0, 1);
        fuzz_recover(&blows);
    }
}
