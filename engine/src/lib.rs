// TEMP
#[allow(warnings)] pub mod abi {  #![allow(unsafe_op_in_unsafe_fn)] include!(concat!(env!("OUT_DIR"), "/abi.rs")); }
#[allow(clippy::all)] unsafe extern "C" { fn shim_eval(w: *mut abi::ts_window, t: *const abi::ts_tick, v: *mut abi::ts_value) -> i32; }
#[derive(Debug)] pub struct Error(pub String);
impl std::fmt::Display for Error { fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(&self.0) } }
pub struct Value { pub value: u64, pub parts: [u64; 2] }
pub fn window_value(w: &abi::ts_window, tick: &abi::ts_tick) -> Option<Value> {
    let mut w = *w; let mut v = abi::ts_value::default();
    if unsafe { shim_eval(&mut w, tick, &mut v) } != 0 { return None; }
    Some(Value { value: v.value, parts: v.part })
}
pub fn config(period_ms: u32, delay_ms: u32, ty: u32, enabled: bool, epoch: u32, hz: u32) -> Result<abi::ts_config, Error> {
    let period_j = period_ms as u64 * hz as u64 / 1000;
    let precise = period_j < 100;
    let slide = if precise { period_ms as u64 * 100_000 } else { period_j / 10 };
    let (delay, shift) = if precise { ((delay_ms as u64 * 1_000_000).div_ceil(1 << 20), 20) } else { ((delay_ms as u64 * hz as u64).div_ceil(1000), 0) };
    Ok(abi::ts_config { enabled: enabled as u32, type_: ty, epoch, precise: precise as u32, slide, fraction: (1u64 << 56) / slide, delay: delay as u32, delay_shift: shift, period_ms, delay_ms })
}
pub fn table_size(entries: u32) -> usize { size_of::<abi::ts_table>() + entries as usize * size_of::<abi::ts_entry>() }
pub fn entries_for(top: u32) -> Result<u32, Error> { if top < 1 || top > 1024 { return Err(Error(format!("top must be 1 to 1024, not {top}"))); } Ok((top * 2).next_power_of_two()) }
