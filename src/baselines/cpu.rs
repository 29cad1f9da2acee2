//! placeholder
use crate::{*, variant::*};
pub(crate) struct Direct(Info);
pub(crate) struct Gemm(Info);
fn info(name:&str)->Info{ Info{name:name.into(),family:"cpu".into(),idea:"".into(),source:"".into(),kind:Kind::Cpu,min_arch:0,max_arch:0,configs:vec![]}}
impl Direct { pub(crate) fn new()->Self{Direct(info("cpu_direct"))} }
impl Gemm { pub(crate) fn new()->Self{Gemm(info("cpu_gemm"))} }
impl Variant for Direct { fn info(&self)->&Info{&self.0} fn supports(&self,_:&Query)->std::result::Result<(),String>{Err("todo".into())} fn plan(&self,_:&Device,_:&Query)->Result<Box<dyn Plan>>{Err(Error::Interrupted)} }
impl Variant for Gemm { fn info(&self)->&Info{&self.0} fn supports(&self,_:&Query)->std::result::Result<(),String>{Err("todo".into())} fn plan(&self,_:&Device,_:&Query)->Result<Box<dyn Plan>>{Err(Error::Interrupted)} }
