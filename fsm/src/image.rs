//! A pinned image of the state, streamed while entries go on being applied.

use crate::header::HEADER_KEY;
use crate::rows::Walk;
use crate::snapshot::{RecordFrame, footer_frame, header_frame};
use crate::store::{Reader, Store};
use bytes::Bytes;
use holdfast_consensus::fault::StoreFault;
use holdfast_consensus::traits::SnapshotSource;
use std::sync::Arc;

/// The state at one index, as a snapshot stream. Holds a read transaction: pages of that moment
/// stay until it is dropped. Ends with a typed error if the store is closed or replaced meanwhile.
pub struct Image {
    reader: Reader,
    /// Keeps the store open; it is sealed, not dropped, when it is replaced.
    _store: Arc<Store>,
    stage: Stage,
}

enum Stage {
    Header,
    /// Records from behind this full key.
    Records(Vec<u8>),
    Footer,
    End,
}

impl Image {
    pub(crate) fn new(store: Arc<Store>) -> Result<Self, StoreFault> {
        let reader = store.read()?;
        Ok(Self { reader, _store: store, stage: Stage::Header })
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    fn records(&self, behind: &[u8]) -> Result<(Option<Bytes>, Option<Vec<u8>>), StoreFault> {
        let mut frame = RecordFrame::default();
        let mut last = None;
        self.reader.walk(behind, |key, value| {
            if key == behind {
                return Ok(Walk::On);
            }
            if frame.push(key, value) {
                last = Some(key.to_vec());
                return Ok(Walk::Stop);
            }
            Ok(Walk::On)
        })?;
        Ok((frame.finish(), last))
    }
}

impl SnapshotSource for Image {
    fn next_chunk(&mut self) -> Result<Option<Bytes>, StoreFault> {
        loop {
            match &self.stage {
                Stage::Header => {
                    let chunk = header_frame(&self.reader.header).ok_or_else(|| {
                        StoreFault::Snapshot("the configuration is too large".to_owned())
                    })?;
                    self.stage = Stage::Records(HEADER_KEY.to_vec());
                    return Ok(Some(chunk));
                }
                Stage::Records(behind) => {
                    let (chunk, last) = self.records(behind)?;
                    self.stage = last.map_or(Stage::Footer, Stage::Records);
                    if chunk.is_some() {
                        return Ok(chunk);
                    }
                }
                Stage::Footer => {
                    let header = &self.reader.header;
                    let chunk = footer_frame(header.digest, &header.counts);
                    self.stage = Stage::End;
                    return Ok(Some(chunk));
                }
                Stage::End => return Ok(None),
            }
        }
    }
}
