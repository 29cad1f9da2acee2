#include SRC
#include <cstring>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>
#include <algorithm>
#include <chrono>
#define CK(x) do{cudaError_t e=(cudaError_t)(x);if(e){printf("%s:%d %s\n",__FILE__,__LINE__,cudaGetErrorString(e));exit(1);}}while(0)
static uint64_t S=1;static uint32_t rnd(){S+=0x9e3779b97f4a7c15ull;uint64_t z=S;z=(z^z>>30)*0xbf58476d1ce4e5b9ull;z=(z^z>>27)*0x94d049bb133111ebull;return (z^z>>31)>>32;}
static float uni(){return rnd()/2147483648.0f-1;}
__global__ void ref1(const uint8_t*p,const float*w,double*y,int n){for(int64_t i=blockIdx.x*(int64_t)blockDim.x+threadIdx.x;i<(int64_t)n*6400;i+=gridDim.x*(int64_t)blockDim.x){int x=i%40,yy=i/40%40,c=i/1600%4;int64_t im=i/6400;double m=0;for(int a=0;a<2;a++)for(int b=0;b<2;b++){double s=0;for(int r=0;r<7;r++)for(int q=0;q<7;q++)s+=(double)p[im*7396+(2*yy+a+r)*86+2*x+b+q]*w[c*49+r*7+q];m=fmax(m,s);}y[i]=m;}}
__global__ void ref2(const double*x,const float*w,double*y,int n){for(int64_t i=blockIdx.x*(int64_t)blockDim.x+threadIdx.x;i<(int64_t)n*1296;i+=gridDim.x*(int64_t)blockDim.x){int px=i%9,py=i/9%9,k=i/81%16;int64_t im=i/1296;double m=0;for(int a=4*py;a<min(34,4*py+4);a++)for(int b=4*px;b<min(34,4*px+4);b++){double s=0;for(int c=0;c<4;c++)for(int r=0;r<7;r++)for(int q=0;q<7;q++)s+=x[im*6400+c*1600+(a+r)*40+b+q]*(double)w[(k*4+c)*49+r*7+q];m=fmax(m,s);}y[i]=m;}}
__global__ void ref3(const double*x,const float*w,const float*b,double*y,int n,int in,int out,int relu){for(int64_t i=blockIdx.x*(int64_t)blockDim.x+threadIdx.x;i<(int64_t)n*out;i+=gridDim.x*(int64_t)blockDim.x){double s=b[i%out];for(int j=0;j<in;j++)s+=x[i/out*in+j]*(double)w[(i%out)*in+j];y[i]=relu?fmax(s,0.):s;}}
template<class T>T*up(const std::vector<T>&v){T*d;CK(cudaMalloc(&d,v.size()*sizeof(T)+64));CK(cudaMemcpy(d,v.data(),v.size()*sizeof(T),cudaMemcpyHostToDevice));return d;}
int main(int argc,char**argv){
  int N=10000;cudaDeviceProp pr;CK(cudaGetDeviceProperties(&pr,0));int sms=pr.multiProcessorCount;
  uint8_t*hp;CK(cudaMallocHost(&hp,(size_t)N*7396));for(size_t i=0;i<(size_t)N*7396;i+=4){uint32_t r=rnd();memcpy(hp+i,&r,4);}
  for(int im=0;im<N;im++)if(im%3)for(int y=0;y<86;y++)for(int x=0;x<86;x++)if((im*7+y*3+x/5)%4<2)hp[(size_t)im*7396+y*86+x]/=(im%5+1)*8;
  uint8_t*dp;CK(cudaMalloc(&dp,(size_t)N*7396+16));CK(cudaMemcpy(dp,hp,(size_t)N*7396,cudaMemcpyHostToDevice));
  float*feat,*logit;CK(cudaMalloc(&feat,(size_t)N*1296*4));CK(cudaMalloc(&logit,N*40));
  double*r1,*r2,*r3,*r4;int M=1000;CK(cudaMalloc(&r1,(size_t)M*6400*8));CK(cudaMalloc(&r2,(size_t)M*1296*8));CK(cudaMalloc(&r3,M*32*8));CK(cudaMalloc(&r4,M*80));
  void*pk=0;CK(cudaMalloc(&pk,cf_net_fused_packed_bytes()));
  struct{float s1,s2,pos;}sets[]={{0.35f/256,0.175f,0},{1e18f,1e-22f,0},{1e-30f,1e20f,0},{1,1,1},{0.35f/256,0.175f,2}};
  for(auto&st:sets){
    std::vector<float>w1(196),w2(3136),f1(41472),b1(32),f2(320),b2(10);
    auto val=[&](float s){float u=uni();if(st.pos==1)u=fabsf(u);if(st.pos==2)u*=exp2f(10*uni());return u*s;};
    for(auto&v:w1)v=val(st.s1);for(auto&v:w2)v=val(st.s2);for(auto&v:f1)v=uni()*0.07f;for(auto&v:b1)v=uni()*0.1f;for(auto&v:f2)v=uni()*.4f;for(auto&v:b2)v=uni()*.1f;
    float*d1=up(w1),*d2=up(w2),*e1=up(f1),*c1=up(b1),*e2=up(f2),*c2=up(b2);
    cf_fused_weights W={d1,d2,e1,c1,e2,c2};CK(cf_net_fused_pack(&W,pk,0));
    ref1<<<4096,128>>>(dp,d1,r1,M);ref2<<<4096,128>>>(r1,d2,r2,M);ref3<<<256,128>>>(r2,e1,c1,r3,M,1296,32,1);ref3<<<256,128>>>(r3,e2,c2,r4,M,32,10,0);CK(cudaDeviceSynchronize());
    std::vector<double>hf((size_t)M*1296),hl(M*10);CK(cudaMemcpy(hf.data(),r2,hf.size()*8,cudaMemcpyDeviceToHost));CK(cudaMemcpy(hl.data(),r4,hl.size()*8,cudaMemcpyDeviceToHost));
    for(int n:{1000}){
      CK(cudaMemset(feat,0xff,(size_t)M*1296*4));CK(cudaMemset(logit,0xff,M*40));
      CK(cf_net_fused(dp,n,pk,feat,logit,sms,0));CK(cudaDeviceSynchronize());
      std::vector<float>gf((size_t)n*1296),gl(n*10);std::vector<__half>gh((size_t)n*2592);CK(cudaMemcpy(gh.data(),feat,gf.size()*4,cudaMemcpyDeviceToHost));static Packed hp_;CK(cudaMemcpy(&hp_,pk,sizeof hp_,cudaMemcpyDeviceToHost));
      double sc[16];for(int k=0;k<16;k++){double m=0;size_t at=0;for(size_t q=0;q<(size_t)n*81;q++)if(hf[(q/81)*1296+k*81+q%81]>m){m=hf[(q/81)*1296+k*81+q%81];at=q;}size_t o=at*32+(k/4)*8+k%4;double v=(double)__half2float(gh[o])+(double)__half2float(gh[o+4]);sc[k]=m>0?exp2(round(log2(m/v))):1;}
      for(size_t q=0;q<gf.size();q++){size_t o=q/16*32+(q%16/4)*8+q%4;gf[q]=(float)(((double)__half2float(gh[o])+(double)__half2float(gh[o+4]))*sc[q%16]);}CK(cudaMemcpy(gl.data(),logit,gl.size()*4,cudaMemcpyDeviceToHost));
      double wf=0,wl=0,rf=0;int bad=-1,nan=0;
      for(int i=0;i<n;i++){double mf=0,ml=0;for(int j=0;j<1296;j++)mf=fmax(mf,fabs(hf[(size_t)i*1296+j]));for(int j=0;j<10;j++)ml=fmax(ml,fabs(hl[i*10+j]));
        for(int j=0;j<1296;j++){int k=j%16,p=j/16;double e=fabs(gf[(size_t)i*1296+j]-hf[(size_t)i*1296+k*81+p])/mf;if(!(e<1e30)){nan++;}if(!(e<=wf)){wf=e;}if(!(e<1e-4)&&bad<0)bad=i*1296+j;rf+=e*e;}
        for(int j=0;j<10;j++){double e=fabs(gl[i*10+j]-hl[i*10+j])/ml;if(!(e<=wl))wl=e;}}
      printf("scales %g %g %g n %4d: features worst %.2e rms %.2e, logits worst %.2e  first bad %d nan %d\n",st.s1,st.s2,st.pos,n,wf,sqrt(rf/n/1296),wl,bad,nan);
    }}
  cudaEvent_t a,b;CK(cudaEventCreate(&a));CK(cudaEventCreate(&b));
  for(int n:{132,1320,10000}){std::vector<float>t;for(int i=0;i<7;i++){CK(cudaEventRecord(a));CK(cf_net_fused(dp,n,pk,feat,logit,sms,0));CK(cudaEventRecord(b));CK(cudaEventSynchronize(b));float ms;CK(cudaEventElapsedTime(&ms,a,b));t.push_back(ms);}std::sort(t.begin(),t.end());printf("n %d: %.1f us (%.1f..%.1f)\n",n,t[3]*1e3,t[0]*1e3,t[6]*1e3);}
  for(int n:{132,1320,10000})for(int k=0;k<2;k++){std::vector<float>t;for(int i=0;i<9;i++){CK(cudaEventRecord(a));
    if(k==0)convolutions<<<std::min(n,sms),Threads,sizeof(Shared)>>>(dp,n,(Packed*)pk,(uint4*)feat);else fully_connected<<<(n+15)/16,Threads>>>((uint4*)feat,n,(Packed*)pk,logit);
    CK(cudaEventRecord(b));CK(cudaEventSynchronize(b));float ms;CK(cudaEventElapsedTime(&ms,a,b));t.push_back(ms);}std::sort(t.begin(),t.end());printf("n %d %s: %.1f us (%.1f..%.1f)\n",n,k?"fc":"conv",t[4]*1e3,t[0]*1e3,t[8]*1e3);}
  if(argc>1)return 0;
  float*hl;CK(cudaMallocHost(&hl,N*40));
  {std::vector<float>t;for(int i=0;i<7;i++){CK(cudaEventRecord(a));CK(cudaMemcpyAsync(dp,hp,(size_t)N*7396,cudaMemcpyHostToDevice));CK(cudaEventRecord(b));CK(cudaEventSynchronize(b));float ms;CK(cudaEventElapsedTime(&ms,a,b));t.push_back(ms);}std::sort(t.begin(),t.end());printf("copy in %.1f us (%.1f..%.1f)\n",t[3]*1e3,t[0]*1e3,t[6]*1e3);}
  for(int rule=0;rule<8;rule++){std::vector<int>sz;int U=132;
    if(rule==0)for(int f=0;f<N;f+=1056)sz.push_back(std::min(1056,N-f));
    else if(rule==7)for(int f=0;f<N;f+=792)sz.push_back(std::min(792,N-f));
    else{int d=rule==1||rule==4?4:rule==2||rule==5?3:6,mn=rule<=3?2:4;int at=0;while(at<N){int u=std::max(mn,((N-at)/U+d-1)/d);int e=std::min(N,at+u*U);sz.push_back(e-at);at=e;}}
    for(int mode=0;mode<3;mode++){cudaStream_t cs,ks;CK(cudaStreamCreateWithFlags(&cs,cudaStreamNonBlocking));CK(cudaStreamCreateWithFlags(&ks,cudaStreamNonBlocking));
    std::vector<cudaEvent_t>ev(sz.size());for(auto&x:ev)CK(cudaEventCreate(&x));
    std::vector<double>t;for(int i=0;i<15;i++){auto t0=std::chrono::steady_clock::now();int k=0,f=0;for(int n:sz){CK(cudaMemcpyAsync(dp+(size_t)f*7396,hp+(size_t)f*7396,(size_t)n*7396,cudaMemcpyHostToDevice,cs));CK(cudaEventRecord(ev[k],cs));CK(cudaStreamWaitEvent(ks,ev[k],0));CK(cf_net_fused(dp+(size_t)f*7396,n,pk,feat+(size_t)f*1296,logit+f*10,sms,ks));if(mode==0)CK(cudaMemcpyAsync(hl+f*10,logit+f*10,n*40,cudaMemcpyDeviceToHost,ks));f+=n;k++;}
      if(mode==1)CK(cudaMemcpyAsync(hl,logit,N*40,cudaMemcpyDeviceToHost,ks));
      if(mode==2)CK(cudaStreamSynchronize(cs));
      CK(cudaStreamSynchronize(ks));t.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now()-t0).count()*1e6);}
    std::sort(t.begin(),t.end());printf("rule %d: %zu chunks, last %d, mode %d: %.0f us (%.0f..%.0f)\n",rule,sz.size(),sz.back(),mode,t[7],t[0],t[14]);}}
  return 0;}
